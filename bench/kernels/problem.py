"""Random queries, keys and values of a shape, the same for every implementation; the paged cache
that holds them; and what attention over them must give."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from backends.kernels.base import FP8, FP8_MAX, KvCache, PagedBatch
from bench.kernels.shape import Shape

MODEL_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}
"""Of queries and outputs."""

TOLERANCES = {"bf16": 2e-2, "fp16": 5e-3, "fp8": 2e-2}
"""Of relative_error: as in the tests of our own kernels."""

FP8_K_SCALE = 0.5
"""Beside a scale of 1 for V, which flashinfer would apply in a kernel of its own."""


@dataclass(frozen=True, slots=True)
class Problem:
    """q: [batch, heads, head_dim]; keys, values: [batch, context, kv_heads, head_dim] in the
    cache's dtype, where K is keys x k_scale. `scale` multiplies q . K."""

    shape: Shape
    q: Tensor
    keys: Tensor
    values: Tensor
    scale: float
    k_scale: float


@dataclass(frozen=True, slots=True)
class PagedProblem:
    """A problem's K and V in blocks that lie shuffled in a pool: [blocks, 2, block_size, kv_heads,
    head_dim], as backends/paged.py holds a layer's."""

    problem: Problem
    pool: Tensor
    batch: PagedBatch

    @property
    def cache(self) -> KvCache:
        """The pool as our kernels take it."""
        return KvCache(self.pool[:, 0], self.pool[:, 1], self.problem.k_scale)


def make_problem(shape: Shape, device: str, seed: int = 0) -> Problem:
    """Standard normal q, K and V."""
    generator = torch.Generator(device).manual_seed(seed)
    dtype = MODEL_DTYPES[shape.dtype]

    def normal(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator, dtype=dtype, device=device)

    q = normal(shape.batch, shape.heads, shape.head_dim)
    kv_sizes = shape.batch, shape.context, shape.kv_heads, shape.head_dim
    keys, values = normal(*kv_sizes), normal(*kv_sizes)
    k_scale = 1.0
    if shape.dtype == "fp8":
        k_scale = FP8_K_SCALE
        keys = keys.div_(k_scale).clamp_(-FP8_MAX, FP8_MAX).to(FP8)
        values = values.to(FP8)
    return Problem(shape, q, keys, values, shape.head_dim**-0.5, k_scale)


def paged(problem: Problem, block_size: int, seed: int = 0) -> PagedProblem:
    """Copies K and V into a pool of just as many blocks as they need. Ids are shuffled over the
    whole pool, so that no sequence's blocks lie side by side but by chance."""
    shape, device = problem.shape, problem.q.device
    per_seq = -(-shape.context // block_size)
    num_blocks = shape.batch * per_seq
    ids = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(seed))
    tables = ids.view(shape.batch, per_seq)
    pool = torch.zeros(
        num_blocks, 2, block_size, shape.kv_heads, shape.head_dim,
        dtype=problem.keys.dtype, device=device,
    )  # fmt: skip
    positions = torch.arange(shape.context)
    blocks, offsets = tables[:, positions // block_size].to(device), positions % block_size
    # Bytes, as not every device can scatter FP8.
    bits = torch.uint8 if problem.keys.dtype == FP8 else problem.keys.dtype
    for part, rows in enumerate((problem.keys, problem.values)):
        pool.view(bits)[blocks, part, offsets.to(device)] = rows.view(bits)
    batch = PagedBatch.of(
        tables.tolist(), [shape.context] * shape.batch, [1] * shape.batch, block_size, device
    )
    return PagedProblem(problem, pool, batch)


def reference(problem: Problem) -> Tensor:
    """Attention from the textbook in fp32: [batch, heads, head_dim]. One sequence at a time, as
    K and V in fp32 would not fit beside themselves."""
    shape = problem.shape
    group = shape.heads // shape.kv_heads
    out = torch.empty_like(problem.q, dtype=torch.float32)
    for row, q, keys, values in zip(out, problem.q, problem.keys, problem.values, strict=True):
        grouped = q.float().view(shape.kv_heads, group, shape.head_dim)
        scores = grouped @ keys.float().permute(1, 2, 0) * (problem.scale * problem.k_scale)
        attended = scores.softmax(-1) @ values.float().transpose(0, 1)
        row.copy_(attended.view(shape.heads, shape.head_dim))
    return out


def relative_error(found: Tensor, expected: Tensor) -> float:
    """The worst vector's largest error over its largest element; NaN where any element is NaN."""
    errors = (found.float() - expected).abs().amax(-1) / expected.abs().amax(-1)
    return float(errors.max())
