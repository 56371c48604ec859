"""How far a kernel is from its reference, on a random batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from backends.kernels.base import FP8, FP8_MAX, KvCache, PagedBatch
from bench.gpu_check.kernel_cases import Case, empty_cache, problem, reference, relative_error

Store = Callable[[Tensor, Tensor, KvCache, Tensor], None]


class Attention(Protocol):
    """paged_decode or paged_prefill of any implementation."""

    def __call__(
        self, q: Tensor, cache: KvCache, batch: PagedBatch, scale: float, *, out: Tensor
    ) -> Tensor: ...


def attention_error(attention: Attention, case: Case, device: str = "cpu") -> float:
    """Relative error against float64 of what it wrote to an output of NaN."""
    given = problem(case, device)
    out = torch.full_like(given.q, float("nan"))
    returned = attention(given.q, given.cache, given.batch, case.scale, out=out)
    assert returned is out
    return relative_error(out, reference(case, given))


def store_differences(
    store: Store, case: Case, skipped: tuple[int, ...] = (), device: str = "cpu"
) -> list[str]:
    """Which caches differ, in any bit, from those written one token at a time; `skipped` tokens
    are padding. K and V come as parts of a wider tensor, as a model's projection gives them."""
    batch = problem(case).batch
    heads, kv_heads = case.heads
    generator = torch.Generator().manual_seed(case.seed)
    qkv = torch.randn(
        len(batch.slot_mapping), heads + 2 * kv_heads, case.head_dim, generator=generator
    )
    qkv[::3] *= 300  # beyond FP8's 448 x 0.25, not beyond x 2
    _, k, v = torch.split(qkv.to(device, case.dtype), [heads, kv_heads, kv_heads], dim=1)
    slots = batch.slot_mapping.clone()
    slots[list(skipped)] = -1
    num_blocks = int(batch.block_tables.max()) + 1
    found, expected = empty_cache(case, num_blocks, device), empty_cache(case, num_blocks)
    store(k, v, found, slots.to(device))
    for token, slot in enumerate(slots.tolist()):
        if slot >= 0:
            place = divmod(slot, case.block_size)
            expected.keys[place] = _quantized(k[token].cpu(), case, case.k_scale)
            expected.values[place] = _quantized(v[token].cpu(), case, case.v_scale)
    return _differing(found, expected)


def _quantized(row: Tensor, case: Case, scale: float) -> Tensor:
    if case.cache_dtype != FP8:
        return row
    return (row.float() / scale).clamp(-FP8_MAX, FP8_MAX).to(FP8)


def _differing(found: KvCache, expected: KvCache) -> list[str]:
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[found.keys.element_size()]
    pairs = zip(("keys", "values"), found[:2], expected[:2], strict=False)
    return [part for part, a, b in pairs if not torch.equal(a.view(bits).cpu(), b.view(bits))]
