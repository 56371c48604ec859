"""Random paged batches, full of NaN wherever nobody may read, and attention in float64.

The tests run them in Triton's interpreter, `fragbench gpu-check` on a GPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from backends.kernels.base import FP8, KvCache, PagedBatch

BLOCK_SIZES = (8, 16, 32, 64, 128, 256)
HEADS = ((2, 2), (8, 2), (8, 1))  # ratios 1, 4 and 8
HEAD_DIMS = (64, 80, 128)
DTYPES = (
    (torch.float32, torch.float32),
    (torch.float16, torch.float16),
    (torch.bfloat16, torch.bfloat16),
    (torch.float32, FP8),
    (torch.bfloat16, FP8),
)
TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 2e-2}
LENGTHS = (1, 15, 16, 17, 255, 256, 257)


@dataclass(frozen=True)
class Case:
    """Sequence i has context_lens[i] tokens, the last query_lens[i] of which are new."""

    context_lens: tuple[int, ...]
    query_lens: tuple[int, ...]
    block_size: int = 16
    heads: tuple[int, int] = (8, 2)
    head_dim: int = 64
    dtype: torch.dtype = torch.float32
    cache_dtype: torch.dtype = torch.float32
    k_scale: float = 1.0
    v_scale: float = 1.0
    seed: int = 0

    @property
    def scale(self) -> float:
        return float(self.head_dim**-0.5)

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.dtype]


@dataclass(frozen=True)
class Problem:
    """keys[i], values[i]: float64 [context, kv_heads, head_dim], what sequence i reads."""

    q: Tensor
    cache: KvCache
    batch: PagedBatch
    keys: list[Tensor]
    values: list[Tensor]


def variants(
    context_lens: tuple[int, ...], query_lens: tuple[int, ...], *, all_of_them: bool
) -> Iterator[Case]:
    """The cross product of sizes and dtypes, or each size with each of a few others."""
    choices = (BLOCK_SIZES, HEADS, HEAD_DIMS, DTYPES)
    if all_of_them:
        products: Iterator[tuple] = itertools.product(*choices)  # type: ignore[type-arg]
    else:  # 30 steps: 6, 3 and 5 options meet in 30 ways, the 3 head dimensions shifted
        products = (
            (BLOCK_SIZES[i % 6], HEADS[i % 3], HEAD_DIMS[(i + i // 3) % 3], DTYPES[i % 5])
            for i in range(30)
        )
    for seed, (block_size, heads, head_dim, (dtype, cache_dtype)) in enumerate(products):
        scales = (0.25, 2.0) if cache_dtype == FP8 else (1.0, 1.0)
        yield Case(
            context_lens, query_lens, block_size, heads, head_dim, dtype, cache_dtype, *scales, seed
        )


def name(case: Case) -> str:
    dtypes = "-".join(str(each).removeprefix("torch.") for each in (case.dtype, case.cache_dtype))
    return f"block{case.block_size}-heads{case.heads[0]}:{case.heads[1]}-d{case.head_dim}-{dtypes}"


def problem(case: Case, device: str = "cpu") -> Problem:
    """A cache of NaN in which the sequences' blocks lie scattered. Table entries past the last
    block name a block that nobody owns."""
    generator = torch.Generator().manual_seed(case.seed)
    heads, kv_heads = case.heads
    counts = [-(-context // case.block_size) for context in case.context_lens]
    nobodys, *block_ids = torch.randperm(sum(counts) + 1, generator=generator).tolist()
    buffer = _poisoned(case, sum(counts) + 1)
    tables: list[list[int]] = []
    keys: list[Tensor] = []
    values: list[Tensor] = []
    for context, count in zip(case.context_lens, counts, strict=True):
        table, block_ids = block_ids[:count], block_ids[count:]
        tables.append(table + [nobodys] * (max(counts) + 1 - count))
        for part, scale, kept in ((0, case.k_scale, keys), (1, case.v_scale, values)):
            rows = torch.randn(context, kv_heads, case.head_dim, generator=generator)
            stored = (rows / scale).to(case.cache_dtype)
            for block, block_id in enumerate(table):
                tokens = stored[block * case.block_size :][: case.block_size]
                buffer[block_id, part, : len(tokens)] = tokens
            kept.append(stored.double() * scale)
    wide = torch.randn(sum(case.query_lens), heads + 1, case.head_dim, generator=generator)
    wide[:, heads] = float("nan")  # q is a part of what a projection gives, as in a model
    q = wide.to(device, case.dtype)[:, :heads]
    batch = PagedBatch.of(tables, case.context_lens, case.query_lens, case.block_size, device)
    return Problem(q, _cache(case, buffer.to(device)), batch, keys, values)


def empty_cache(case: Case, num_blocks: int, device: str = "cpu") -> KvCache:
    """NaN everywhere."""
    return _cache(case, _poisoned(case, num_blocks).to(device))


def _poisoned(case: Case, num_blocks: int) -> Tensor:
    shape = num_blocks, 2, case.block_size, case.heads[1], case.head_dim
    return torch.full(shape, float("nan")).to(case.cache_dtype)


def _cache(case: Case, buffer: Tensor) -> KvCache:
    """K and V of a block lie side by side, so that blocks of either are not contiguous."""
    return KvCache(buffer[:, 0], buffer[:, 1], case.k_scale, case.v_scale)


def reference(case: Case, given: Problem) -> Tensor:
    """Causal attention, one sequence at a time, from the textbook, on the CPU: float64
    [tokens, heads, d]."""
    group = case.heads[0] // case.heads[1]
    outputs = [torch.empty(0, case.heads[0], case.head_dim, dtype=torch.float64)]
    queries = torch.split(given.q.cpu().double(), list(case.query_lens))
    for q, k, v in zip(queries, given.keys, given.values, strict=True):
        k, v = (each.repeat_interleave(group, dim=1) for each in (k, v))
        scores = torch.einsum("qhd,thd->hqt", q, k) * case.scale
        ahead = torch.ones(len(q), len(k)).triu(len(k) - len(q) + 1).bool()
        weights = scores.masked_fill(ahead, float("-inf")).softmax(-1)
        outputs.append(torch.einsum("hqt,thd->qhd", weights, v))
    return torch.cat(outputs)


def relative_error(found: Tensor, expected: Tensor) -> float:
    """The worst vector's largest error over its largest element; NaN where any element is NaN."""
    if not len(expected):
        return 0.0
    errors = (found.cpu().double() - expected).abs().amax(-1) / expected.abs().amax(-1)
    return float(errors.max())
