"""Every kernel compiles, to machine code, for cards that this machine does not have.

The wrappers run as they are, on tensors without memory; only the launch is left out. Triton's
interpreter runs what no compiler takes (casts to FP8, say), so that its tests are not enough.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime import JITFunction, driver

from backends.kernels import decode, fp8, prefill, store
from backends.kernels.base import FP8, KvCache, PagedBatch
from bench.gpu_check.kernel_cases import BLOCK_SIZES, DTYPES, HEAD_DIMS

SHARED_BYTES = {80: 163 << 10, 90: 227 << 10}
"""The most that a block may have (CUDA C++ programming guide, compute capabilities)."""

Compile = Callable[..., list[Any]]


class CompileOnly:
    """Triton's driver for a card that is not there; `arch` also numbers it, so that kernels for
    one card are not taken for another's."""

    def __init__(self, arch: int) -> None:
        self.arch = arch

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.arch, 32)

    def get_current_device(self) -> int:
        return self.arch

    def get_current_stream(self, device: int) -> int:
        return 0


@pytest.fixture
def compile_for(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compile]:
    """compile_for(arch, call): the kernels that the call would have launched."""
    run, compiled = JITFunction.run, []

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        compiled.append(run(self, *args, grid=grid, warmup=True, **kwargs))

    def compile_for(arch: int, call: Callable[[], object]) -> list[Any]:
        compiled.clear()
        monkeypatch.setattr(driver, "_active", CompileOnly(arch))
        monkeypatch.setattr(fp8, "has_fp8", lambda device: arch >= 89)
        call()
        return list(compiled)

    monkeypatch.setattr(JITFunction, "run", compile_only)
    return compile_for


def on_meta(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def cache_and_batch(block_size: int, head_dim: int, cache_dtype: torch.dtype) -> tuple[Any, Any]:
    part = on_meta(16, block_size, 2, head_dim, dtype=cache_dtype)
    index = {"dtype": torch.int32}
    batch = PagedBatch(
        on_meta(3, 600 // block_size + 1, **index),
        on_meta(3, **index),
        on_meta(4, **index),
        on_meta(99, dtype=torch.int64),
        longest_context=600,
        longest_query=60,
    )
    return KvCache(part, part, 0.5, 0.5), batch


def compile_all(
    compile_for: Compile, arch: int, block_size: int, head_dim: int, heads: int,
    dtype: torch.dtype, cache_dtype: torch.dtype, *, every: bool = False,
) -> dict[str, Any]:  # fmt: skip
    cache, batch = cache_and_batch(block_size, head_dim, cache_dtype)
    q, k = (on_meta(99, each, head_dim, dtype=dtype) for each in (heads, 2))

    def calls() -> None:
        store.store_kv(k, k, cache, batch.slot_mapping)
        prefill.paged_prefill(q, cache, batch, 0.1)
        decode.paged_decode(q[:3], cache, batch, 0.1, splits=7)
        if every:
            decode.paged_decode(q[:3], cache, batch, 0.1, splits=1)
            prefill.paged_prefill(q, cache, batch._replace(longest_query=1), 0.1)

    names = ("store", "prefill", "decode", "join", "decode without join", "short prefill")
    return dict(zip(names, compile_for(arch, calls), strict=every))


def check(kernels: dict[str, Any], arch: int) -> None:
    for name, kernel in kernels.items():
        assert f".target sm_{arch}" in kernel.asm["ptx"], name
        assert kernel.asm["cubin"].startswith(b"\x7fELF"), name
        assert kernel.metadata.shared <= SHARED_BYTES[arch], name


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize(
    "dtypes", [each for each in DTYPES if each != (torch.float32, FP8)], ids=str
)
def test_kernels_compile(
    compile_for: Compile, arch: int, dtypes: tuple[torch.dtype, torch.dtype]
) -> None:
    kernels = compile_all(compile_for, arch, 16, 128, 8, *dtypes)
    check(kernels, arch)
    tensor_cores = dtypes[0] != torch.float32
    for name in ("prefill", "decode"):
        assert ("mma" in kernels[name].asm["ptx"]) == tensor_cores, name


@pytest.mark.long
@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize(
    ("heads", "head_dim", "dtypes"), list(itertools.product((2, 8, 16), (*HEAD_DIMS, 256), DTYPES)),
    ids=str,
)  # fmt: skip
def test_every_variant_compiles(
    compile_for: Compile,
    arch: int,
    heads: int,
    head_dim: int,
    dtypes: tuple[torch.dtype, torch.dtype],
) -> None:
    check(compile_all(compile_for, arch, 16, head_dim, heads, *dtypes, every=True), arch)


def test_one_kernel_serves_all_block_sizes_and_split_counts(compile_for: Compile) -> None:
    dtypes = torch.float16, torch.float16
    kernels = [
        compile_all(compile_for, 90, block_size, 128, 8, *dtypes) for block_size in BLOCK_SIZES
    ]
    for name in kernels[0]:
        assert len({id(each[name]) for each in kernels}) == 1, name
    cache, batch = cache_and_batch(16, 128, torch.float16)
    q = on_meta(3, 8, 128, dtype=torch.float16)
    for splits in (2, 16, 64):
        split, join = compile_for(
            90, lambda n=splits: decode.paged_decode(q, cache, batch, 0.1, splits=n)
        )
        assert split is kernels[0]["decode"]
        assert join is kernels[0]["join"]


@pytest.mark.parametrize("arch", [80, 90])
def test_fp8_is_converted_by_the_card_that_can(compile_for: Compile, arch: int) -> None:
    kernels = compile_all(compile_for, arch, 16, 128, 8, torch.bfloat16, FP8)
    assert ("e4m3" in kernels["decode"].asm["ptx"]) == (arch == 90)
