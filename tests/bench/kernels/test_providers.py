"""What is measured computes attention; what other libraries are given is as they document it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Executor
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bench.kernels.problem import TOLERANCES, make_problem, reference, relative_error
from bench.kernels.providers import flashinfer, sdpa, vllm
from bench.kernels.providers.base import Unsupported
from bench.kernels.registry import PROVIDERS
from bench.kernels.shape import Shape
from tests.backends.kernels.interpreter import interpreting_process
from tests.bench.kernels.kernel_jobs import paged_decode_error

SHAPE = Shape(batch=2, context=37, heads=8, kv_heads=2, head_dim=16, dtype="bf16")
FP8_SHAPE = Shape(2, 37, 8, 2, 16, "fp8")


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Executor]:
    with interpreting_process() as process:
        yield process


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp8"])
@pytest.mark.parametrize("block_size", [8, 32, 256])
def test_our_kernel_agrees(interpreter: Executor, dtype: str, block_size: int) -> None:
    shape = Shape(2, 37, 8, 2, 16, dtype)
    error = interpreter.submit(paged_decode_error, shape, block_size).result()
    assert error <= TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 2), (4, 4)])
def test_sdpa_agrees(dtype: str, heads: int, kv_heads: int) -> None:
    problem = make_problem(Shape(2, 37, heads, kv_heads, 16, dtype), "cpu")
    found = sdpa.prepare(problem, None)()
    assert relative_error(found, reference(problem)) <= TOLERANCES[dtype]


def test_sdpa_reads_contiguous_memory_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(SHAPE, "cpu")
    seen: list[int] = []

    def attend(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        seen.extend([k.data_ptr(), v.data_ptr()])
        return q

    decode = sdpa.prepare(problem, None)
    monkeypatch.setattr(functional, "scaled_dot_product_attention", attend)
    decode()
    assert seen == [problem.keys.data_ptr(), problem.values.data_ptr()]


def test_sdpa_says_that_it_takes_no_fp8() -> None:
    with pytest.raises(Unsupported, match="dtype"):
        sdpa.prepare(make_problem(FP8_SHAPE, "cpu"), None)


# Neither library runs without a GPU. These stand in with the documented interface, and compute from
# nothing but what they are given.


class Wrapper:
    """flashinfer.BatchDecodeWithPagedKVCacheWrapper: pages, "NHD" [pages, 2, size, heads, d]."""

    def __init__(
        self,
        float_workspace_buffer: Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        use_tensor_cores: bool = False,
        paged_kv_indptr_buffer: Tensor | None = None,
        paged_kv_indices_buffer: Tensor | None = None,
        paged_kv_last_page_len_buffer: Tensor | None = None,
    ) -> None:
        assert kv_layout == "NHD"
        assert float_workspace_buffer.dtype == torch.uint8
        self.use_tensor_cores = use_tensor_cores
        if use_cuda_graph:
            assert paged_kv_indptr_buffer is not None
            assert paged_kv_indices_buffer is not None
            assert paged_kv_last_page_len_buffer is not None
        made.append(self)

    def plan(
        self,
        indptr: Tensor,
        indices: Tensor,
        last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
        sm_scale: float,
    ) -> None:
        assert indptr.dtype == indices.dtype == last_page_len.dtype == torch.int32
        assert (num_qo_heads, num_kv_heads, head_dim) == (8, 2, 16)
        self.planned = indptr, indices, last_page_len, page_size, sm_scale
        self.dtypes = q_data_type, kv_data_type

    def run(self, q: Tensor, paged_kv_cache: Tensor, *, k_scale: float | None = None) -> Tensor:
        indptr, indices, last_page_len, page_size, sm_scale = self.planned
        assert (q.dtype, paged_kv_cache.dtype) == self.dtypes
        out = torch.empty_like(q)
        for seq, last in enumerate(last_page_len.tolist()):
            pages = indices[indptr[seq] : indptr[seq + 1]].tolist()
            length = (len(pages) - 1) * page_size + last
            kv = torch.cat([paged_kv_cache[page] for page in pages], dim=1)[:, :length].float()
            out[seq] = attend_one(q[seq], kv[0] * (k_scale or 1), kv[1], sm_scale)
        return out


made: list[Wrapper] = []


def attend_one(q: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """q: [heads, d]; keys, values: [tokens, kv_heads, d]."""
    attended = functional.scaled_dot_product_attention(
        q.float()[:, None],
        keys.float().transpose(0, 1),
        values.float().transpose(0, 1),
        scale=scale,
        enable_gqa=True,
    )
    return attended[:, 0].to(q.dtype)


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    max_seqlen_q: int,
    cu_seqlens_q: Tensor,
    max_seqlen_k: int,
    seqused_k: Tensor,
    block_table: Tensor,
    softmax_scale: float,
    causal: bool,
    fa_version: int,
) -> Tensor:
    """vLLM's build of FlashAttention: k, v are [blocks, block_size, kv_heads, d]."""
    assert causal
    assert fa_version == 3
    assert cu_seqlens_q.tolist() == list(range(len(q) + 1))
    assert (max_seqlen_q, max_seqlen_k) == (1, int(seqused_k.max()))
    out = torch.empty_like(q)
    for seq, (table, length) in enumerate(zip(block_table.tolist(), seqused_k, strict=True)):
        keys, values = (torch.cat([part[block] for block in table])[:length] for part in (k, v))
        out[seq] = attend_one(q[seq], keys, values, softmax_scale)
    return out


def pretend(monkeypatch: pytest.MonkeyPatch, name: str, **contents: object) -> None:
    module = ModuleType(name)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp8"])
@pytest.mark.parametrize("block_size", [8, 16, 64])
def test_flashinfer_is_given_pages_as_it_documents_them(
    monkeypatch: pytest.MonkeyPatch, dtype: str, block_size: int
) -> None:
    pretend(monkeypatch, "flashinfer", BatchDecodeWithPagedKVCacheWrapper=Wrapper)
    problem = make_problem(Shape(2, 37, 8, 2, 16, dtype), "cpu")
    found = flashinfer.prepare(problem, block_size)()
    assert relative_error(found, reference(problem)) <= TOLERANCES[dtype]
    assert made[-1].use_tensor_cores  # 4 query heads a KV head


@pytest.mark.parametrize("block_size", [16, 64])
def test_vllm_is_given_blocks_as_it_documents_them(
    monkeypatch: pytest.MonkeyPatch, block_size: int
) -> None:
    pretend(monkeypatch, "vllm")
    pretend(monkeypatch, "vllm.vllm_flash_attn", flash_attn_varlen_func=flash_attn_varlen_func)
    chooser = vllm.VERSION_CHOOSERS[-1]
    pretend(monkeypatch, chooser, get_flash_attn_version=lambda: 3)
    problem = make_problem(SHAPE, "cpu")
    found = vllm.prepare(problem, block_size)()
    assert relative_error(found, reference(problem)) <= TOLERANCES["bf16"]


def test_vllm_says_what_it_does_not_take() -> None:
    with pytest.raises(Unsupported, match="multiple of 16"):
        vllm.prepare(make_problem(SHAPE, "cpu"), 8)
    with pytest.raises(Unsupported, match="FP8"):
        vllm.prepare(make_problem(FP8_SHAPE, "cpu"), 16)


def test_the_registry_knows_what_is_installed() -> None:
    by_name = {provider.name: provider for provider in PROVIDERS}
    assert by_name["SDPA"].installed
    assert by_name["SDPA"].version == f"torch {torch.__version__.partition('+')[0]}"
    assert not by_name["SDPA"]._replace(needs="no_such_package").installed
    assert by_name["SDPA"]._replace(distribution="no-such-package").version == ""
