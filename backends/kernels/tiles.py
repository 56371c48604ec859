"""What the attention kernels share: a tile of K or V read through a block table, and one step of
online softmax over it (Milakov and Gimelshein, 2018; FlashAttention, algorithm 1).

A tile is a number of tokens, not of blocks: its rows are looked up one by one, so that blocks may
be smaller than the 16 rows that tensor cores take, or larger than shared memory.
"""

# mypy: disable-error-code="import-untyped,untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl

from backends.kernels.fp8 import decode_e4m3

LOG2_E = 1.4426950408889634
MIN_ROWS = 16
"""The least that each side of a tensor-core product has; fewer query rows are padded."""

TILE_BYTES = 16 << 10
"""K (or V) of a tile. Three stages of both take 96 KiB: sm_86 and sm_89 have 99 KiB a block."""


def padded_head_dim(head_dim: int) -> int:
    return max(MIN_ROWS, int(triton.next_power_of_2(head_dim)))


def tile_tokens(head_dim: int, dtype: torch.dtype) -> int:
    """Tokens a tile, once it is in the queries' dtype."""
    fit = TILE_BYTES // (padded_head_dim(head_dim) * dtype.itemsize)
    return min(max(fit, MIN_ROWS), 128)


@triton.jit
def row_offsets(
    table: tl.tensor,
    tokens: tl.tensor,
    valid: tl.tensor,
    block_stride: tl.tensor,
    slot_stride: tl.tensor,
    block_bits: tl.tensor,
) -> tl.tensor:
    """Where the tokens' rows start in the cache, int64, in elements."""
    block_ids = tl.load(table + (tokens >> block_bits), mask=valid, other=0).to(tl.int64)
    return block_ids * block_stride + (tokens & ((1 << block_bits) - 1)) * slot_stride


@triton.jit
def load_tile(
    cache: tl.tensor, rows: tl.tensor, columns: tl.tensor, mask: tl.tensor, dtype: tl.constexpr
) -> tl.tensor:
    """[tokens, columns] in dtype, zeros where masked; bytes are FP8 codes."""
    tile = tl.load(cache + rows[:, None] + columns[None, :], mask=mask, other=0.0)
    if tile.dtype == tl.uint8:
        tile = decode_e4m3(tile)
    return tile.to(dtype)


@triton.jit
def softmax_step(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    visible: tl.tensor,
    log2_scale: tl.tensor,
    peak: tl.tensor,
    total: tl.tensor,
    acc: tl.tensor,
) -> tl.tensor:
    """Peak score (in powers of two), sum of weights and weighted V of the rows after this tile.
    Every row must have seen a visible token by its first tile."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * log2_scale
    scores = tl.where(visible, scores, float("-inf"))
    new_peak = tl.maximum(peak, tl.max(scores, axis=1))
    weights = tl.exp2(scores - new_peak[:, None])
    shrink = tl.exp2(peak - new_peak)
    total = total * shrink + tl.sum(weights, axis=1)
    acc = tl.dot(weights.to(v.dtype), v, acc=acc * shrink[:, None], input_precision="ieee")
    return new_peak, total, acc
