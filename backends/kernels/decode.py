"""Attention of one query token a sequence over a paged cache.

A program has all query heads of a KV head, so that K and V are loaded once, and a part of the
sequence; a second kernel joins the parts (Flash-Decoding; PagedAttention V2 in vLLM).
"""

# mypy: disable-error-code="import-untyped,untyped-decorator"
# ruff: noqa: N803  # Triton names constants of a compiled kernel in capitals

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from backends.base import BackendError
from backends.kernels.base import KvCache, PagedBatch
from backends.kernels.checks import check_decode
from backends.kernels.fp8 import readable
from backends.kernels.tiles import (
    LOG2_E,
    MIN_ROWS,
    load_tile,
    padded_head_dim,
    row_offsets,
    softmax_step,
    tile_tokens,
)

PROGRAMS_PER_MULTIPROCESSOR = 2
MIN_SPLIT_TOKENS = 256
MAX_SPLITS = 64


def choose_splits(seqs: int, kv_heads: int, longest_context: int, multiprocessors: int) -> int:
    """Parts a sequence: enough programs to fill the GPU, none for less than 256 tokens."""
    wanted = triton.cdiv(PROGRAMS_PER_MULTIPROCESSOR * multiprocessors, seqs * kv_heads)
    return max(1, min(int(wanted), longest_context // MIN_SPLIT_TOKENS, MAX_SPLITS))


def paged_decode(
    q: Tensor,
    cache: KvCache,
    batch: PagedBatch,
    scale: float,
    *,
    out: Tensor | None = None,
    splits: int | None = None,
) -> Tensor:
    """out, q: [seqs, heads, head_dim]; `scale` multiplies q . k; zeros for an empty context.
    `splits` is chosen unless given. Raises BackendError."""
    out = torch.empty_like(q) if out is None else out
    check_decode(q, cache, batch, out)
    seqs, heads, head_dim = q.shape
    if seqs == 0:
        return out
    kv_heads = cache.keys.shape[2]
    if splits is None:
        multiprocessors = _multiprocessors(q.device)
        splits = choose_splits(seqs, kv_heads, batch.longest_context, multiprocessors)
    if not 1 <= splits <= MAX_SPLITS:
        raise BackendError(f"splits={splits} is out of range: give 1 to {MAX_SPLITS}")
    parts = out[:, :, None]
    log2_sums = q.new_empty(seqs, heads, splits, dtype=torch.float32)
    if splits > 1:
        parts = q.new_empty(seqs, heads, splits, head_dim, dtype=torch.float32)
    columns = padded_head_dim(head_dim)
    keys = readable(cache.keys)
    _decode[(seqs, kv_heads, splits)](
        q,
        keys,
        readable(cache.values),
        batch.block_tables,
        batch.context_lens,
        parts,
        log2_sums,
        scale * cache.k_scale * LOG2_E,
        cache.v_scale,
        *q.stride()[:2],
        *keys.stride()[:3],
        cache.block_bits,
        batch.block_tables.stride(0),
        *parts.stride()[:3],
        splits,
        GROUP=heads // kv_heads,
        ROWS=max(MIN_ROWS, triton.next_power_of_2(heads // kv_heads)),
        HEAD_DIM=head_dim,
        COLUMNS=columns,
        TILE=tile_tokens(head_dim, q.dtype),
        JOINED=splits > 1,
    )
    if splits > 1:
        _join[(seqs, heads)](
            parts,
            log2_sums,
            out,
            *out.stride()[:2],
            splits,
            HEAD_DIM=head_dim,
            COLUMNS=columns,
            ROWS=MAX_SPLITS,
        )
    return out


def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


@triton.jit(do_not_specialize=["table_stride", "splits"])
def _decode(
    q: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    block_tables: tl.tensor,
    context_lens: tl.tensor,
    parts: tl.tensor,
    log2_sums: tl.tensor,
    log2_scale: tl.tensor,
    v_scale: tl.tensor,
    q_seq_stride: tl.tensor,
    q_head_stride: tl.tensor,
    block_stride: tl.tensor,
    slot_stride: tl.tensor,
    head_stride: tl.tensor,
    block_bits: tl.tensor,
    table_stride: tl.tensor,
    part_seq_stride: tl.tensor,
    part_head_stride: tl.tensor,
    part_split_stride: tl.tensor,
    splits: tl.tensor,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    COLUMNS: tl.constexpr,
    TILE: tl.constexpr,
    JOINED: tl.constexpr,
) -> None:
    seq, kv_head, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    context = tl.load(context_lens + seq)
    tokens_per_split = tl.cdiv(tl.cdiv(context, splits), TILE) * TILE
    start = split * tokens_per_split
    stop = tl.minimum(start + tokens_per_split, context)

    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    heads = kv_head * GROUP + rows
    mask = (rows < GROUP)[:, None] & (columns < HEAD_DIM)[None, :]
    q_offsets = seq * q_seq_stride + heads[:, None] * q_head_stride + columns[None, :]
    query = tl.load(q + q_offsets, mask=mask, other=0)
    table = block_tables + seq * table_stride
    keys += kv_head * head_stride
    values += kv_head * head_stride

    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in range(start, stop, TILE):
        tokens = first + tl.arange(0, TILE)
        valid = tokens < stop
        offsets = row_offsets(table, tokens, valid, block_stride, slot_stride, block_bits)
        inside = valid[:, None] & (columns < HEAD_DIM)[None, :]
        k = load_tile(keys, offsets, columns, inside, query.dtype)
        v = load_tile(values, offsets, columns, inside, query.dtype)
        peak, total, acc = softmax_step(query, k, v, valid[None, :], log2_scale, peak, total, acc)

    total = tl.where(total > 0, total, 1.0)  # an empty part: peak is -inf
    if JOINED:
        log2_sum = peak + tl.log2(total)
        sums = log2_sums + (seq * tl.num_programs(1) * GROUP + heads) * splits + split
        tl.store(sums, log2_sum, mask=rows < GROUP)
    part = acc * (v_scale / total)[:, None]
    offsets = seq * part_seq_stride + heads[:, None] * part_head_stride + columns[None, :]
    parts += split * part_split_stride
    tl.store(parts + offsets, part.to(parts.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["splits"])
def _join(
    parts: tl.tensor,
    log2_sums: tl.tensor,
    out: tl.tensor,
    out_seq_stride: tl.tensor,
    out_head_stride: tl.tensor,
    splits: tl.tensor,
    HEAD_DIM: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """Weighs the parts of one query head by their sums of exponentials."""
    seq, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    first = (seq * tl.num_programs(1) + head) * splits
    sums = tl.load(log2_sums + first + rows, mask=rows < splits, other=float("-inf"))
    peak = tl.max(sums, axis=0)
    peak = tl.where(peak > float("-inf"), peak, 0.0)  # nothing to read at all
    weights = tl.exp2(sums - peak)
    offsets = (first + rows)[:, None] * HEAD_DIM + columns[None, :]
    mask = (rows < splits)[:, None] & (columns < HEAD_DIM)[None, :]
    part = tl.load(parts + offsets, mask=mask, other=0)
    total = tl.sum(weights, axis=0)
    joined = tl.sum(part * weights[:, None], axis=0) / tl.where(total > 0, total, 1.0)
    target = out + seq * out_seq_stride + head * out_head_stride + columns
    tl.store(target, joined.to(out.dtype.element_ty), mask=columns < HEAD_DIM)
