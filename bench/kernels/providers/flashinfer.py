"""flashinfer's BatchDecodeWithPagedKVCacheWrapper, used as engines do (vLLM's and SGLang's
flashinfer backends): planned once, run in a CUDA graph. Written for flashinfer 0.2 to 0.6; its
page layout "NHD" is that of our pool."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from bench.kernels.problem import PagedProblem, Problem, paged
from bench.kernels.providers.base import Decode

WORKSPACE_BYTES = 128 << 20
"""What its documentation recommends."""

TENSOR_CORE_GROUP = 4
"""Query heads a KV head from which engines take its tensor-core kernel, which is prefill's."""


def prepare(problem: Problem, block_size: int | None) -> Decode:
    """A bench.kernels.providers.base.Prepare."""
    assert block_size is not None
    given = paged(problem, block_size)
    shape = problem.shape
    indptr, indices, last_page_len = page_lists(given, block_size)
    grouped = shape.heads // shape.kv_heads >= TENSOR_CORE_GROUP
    flashinfer: Any = import_module("flashinfer")
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=problem.q.device),
        "NHD",
        use_cuda_graph=True,
        use_tensor_cores=grouped or shape.dtype == "fp8",
        paged_kv_indptr_buffer=indptr.clone(),
        paged_kv_indices_buffer=indices.clone(),
        paged_kv_last_page_len_buffer=last_page_len.clone(),
    )
    wrapper.plan(
        indptr,
        indices,
        last_page_len,
        shape.heads,
        shape.kv_heads,
        shape.head_dim,
        block_size,
        q_data_type=problem.q.dtype,
        kv_data_type=problem.keys.dtype,
        sm_scale=problem.scale,
    )
    k_scale = None if problem.k_scale == 1 else problem.k_scale

    def decode() -> Tensor:
        out: Tensor = wrapper.run(problem.q, given.pool, k_scale=k_scale)
        return out

    return decode


def page_lists(given: PagedProblem, block_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Block tables as flashinfer takes them, int32: where each sequence's pages start in the list
    of all [batch + 1], that list [pages], and the tokens in each last page [batch]."""
    batch, per_seq = given.batch.block_tables.shape
    indices = given.batch.block_tables.flatten()
    indptr = torch.arange(batch + 1, dtype=torch.int32, device=indices.device) * per_seq
    return indptr, indices, given.batch.context_lens - (per_seq - 1) * block_size
