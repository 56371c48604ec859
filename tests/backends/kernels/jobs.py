"""What tests run with either implementation: the first argument is its name."""

from __future__ import annotations

from contextlib import nullcontext
from types import ModuleType
from typing import Literal
from unittest import mock

import torch
from torch import Tensor

from backends.kernels.base import FP8, FP8_MAX, KvCache
from tests.backends.kernels.cases import (
    Case,
    Problem,
    empty_cache,
    problem,
    reference,
    relative_error,
)

Name = Literal["torch", "triton"]


def implementation(name: Name, module: str) -> ModuleType:
    if name == "torch":
        from backends.kernels import torch_paged

        return torch_paged
    from backends.kernels import decode, prefill, store

    return {"decode": decode, "prefill": prefill, "store": store}[module]


def _decode(name: Name, given: Problem, scale: float, splits: int | None) -> Tensor:
    forced = {} if name == "torch" else {"splits": splits}
    out = torch.full_like(given.q, float("nan"))
    decode = implementation(name, "decode")
    returned = decode.paged_decode(given.q, given.cache, given.batch, scale, out=out, **forced)
    assert returned is out
    return out


def decode_error(
    name: Name, case: Case, splits: int | None = None, native_fp8: bool = False
) -> float:
    """Relative error; with `native_fp8` the kernel reads FP8 as such, not as bytes."""
    given = problem(case)
    with _native_fp8() if native_fp8 else nullcontext():
        return relative_error(_decode(name, given, case.scale, splits), reference(case, given))


def prefill_error(name: Name, case: Case, native_fp8: bool = False) -> float:
    """As decode_error."""
    given = problem(case)
    out = torch.full_like(given.q, float("nan"))
    prefill = implementation(name, "prefill")
    with _native_fp8() if native_fp8 else nullcontext():
        prefill.paged_prefill(given.q, given.cache, given.batch, case.scale, out=out)
    return relative_error(out, reference(case, given))


def _native_fp8() -> mock._patch[mock.MagicMock]:
    return mock.patch("backends.kernels.fp8.has_fp8", return_value=True)


def empty_contexts(name: Name, splits: int | None) -> tuple[float, float]:
    """Of a batch whose rows 0 and 2 are padding without a token to read: the largest number in
    those rows, and the relative error of row 1."""
    case = Case(context_lens=(1, 40, 1), query_lens=(1, 1, 1))
    given = problem(case)
    lens = torch.tensor([0, 40, 0], dtype=torch.int32)
    padded = Problem(given.q, given.cache, given.batch._replace(context_lens=lens), [], [])
    out = _decode(name, padded, case.scale, splits)
    error = relative_error(out[1:2], reference(case, given)[1:2])
    return float(out[[0, 2]].abs().max()), error


def store_errors(name: Name, case: Case, skipped: tuple[int, ...]) -> list[str]:
    """Which caches differ, in any bit, from those written one token at a time; `skipped` tokens
    are padding. K and V come as parts of a wider tensor, as a model's projection gives them."""
    batch = problem(case).batch
    heads, kv_heads = case.heads
    generator = torch.Generator().manual_seed(case.seed)
    qkv = torch.randn(
        len(batch.slot_mapping), heads + 2 * kv_heads, case.head_dim, generator=generator
    )
    qkv[::3] *= 300  # beyond FP8's 448 x 0.25, not beyond x 2
    _, k, v = qkv.to(case.dtype).split([heads, kv_heads, kv_heads], dim=1)
    slots = batch.slot_mapping.clone()
    slots[list(skipped)] = -1
    num_blocks = int(batch.block_tables.max()) + 1
    found, expected = empty_cache(case, num_blocks), empty_cache(case, num_blocks)
    implementation(name, "store").store_kv(k, v, found, slots)
    for token, slot in enumerate(slots.tolist()):
        if slot >= 0:
            place = divmod(slot, case.block_size)
            expected.keys[place] = _quantized(k[token], case, case.k_scale)
            expected.values[place] = _quantized(v[token], case, case.v_scale)
    return _differing(found, expected)


def _quantized(row: Tensor, case: Case, scale: float) -> Tensor:
    if case.cache_dtype != FP8:
        return row
    return (row.float() / scale).clamp(-FP8_MAX, FP8_MAX).to(FP8)


def _differing(found: KvCache, expected: KvCache) -> list[str]:
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[found.keys.element_size()]
    pairs = zip(("keys", "values"), found[:2], expected[:2], strict=False)
    return [part for part, a, b in pairs if not torch.equal(a.view(bits), b.view(bits))]


def fp8_codes(name: Name, values: list[float]) -> tuple[list[int], list[float]]:
    """The kernels' FP8 codes of fp32 values, and the values of all 256 codes (Triton only)."""
    from tests.backends.kernels.fp8_kernels import decode_all, encode

    return encode(torch.tensor(values)).tolist(), decode_all().tolist()
