"""Causal attention of new tokens over a paged cache that holds their prefix and themselves."""

# mypy: disable-error-code="import-untyped,untyped-decorator"
# ruff: noqa: N803  # Triton names constants of a compiled kernel in capitals

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from backends.kernels.base import KvCache, PagedBatch
from backends.kernels.checks import check_prefill
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

ROW_BYTES = 128
"""Of one column of q: 64 rows in 16 bits, 32 in fp32, whose products use no tensor cores."""


def query_rows(group: int, longest_query: int, dtype: torch.dtype) -> int:
    """Rows of a program: the query heads of a KV head, for one or more tokens."""
    wanted = min(triton.next_power_of_2(group * longest_query), ROW_BYTES // dtype.itemsize)
    return int(max(MIN_ROWS, wanted, triton.next_power_of_2(group)))


def paged_prefill(
    q: Tensor, cache: KvCache, batch: PagedBatch, scale: float, *, out: Tensor | None = None
) -> Tensor:
    """out, q: [tokens, heads, head_dim]; a sequence's new tokens are the last of its context, and
    are stored already. `scale` multiplies q . k. Raises BackendError."""
    out = torch.empty_like(q) if out is None else out
    check_prefill(q, cache, batch, out)
    _, heads, head_dim = q.shape
    seqs, kv_heads = len(batch.block_tables), cache.keys.shape[2]
    if seqs == 0 or batch.longest_query == 0:
        return out
    group = heads // kv_heads
    rows = query_rows(group, batch.longest_query, q.dtype)
    keys = readable(cache.keys)
    _prefill[(triton.cdiv(batch.longest_query, rows // group), seqs, kv_heads)](
        q,
        keys,
        readable(cache.values),
        batch.block_tables,
        batch.context_lens,
        batch.query_starts,
        out,
        scale * cache.k_scale * LOG2_E,
        cache.v_scale,
        *q.stride()[:2],
        *keys.stride()[:3],
        cache.block_bits,
        batch.block_tables.stride(0),
        *out.stride()[:2],
        GROUP=group,
        ROWS=rows,
        HEAD_DIM=head_dim,
        COLUMNS=padded_head_dim(head_dim),
        TILE=tile_tokens(head_dim, q.dtype),
    )
    return out


@triton.jit(do_not_specialize=["table_stride"])
def _prefill(
    q: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    block_tables: tl.tensor,
    context_lens: tl.tensor,
    query_starts: tl.tensor,
    out: tl.tensor,
    log2_scale: tl.tensor,
    v_scale: tl.tensor,
    q_token_stride: tl.tensor,
    q_head_stride: tl.tensor,
    block_stride: tl.tensor,
    slot_stride: tl.tensor,
    head_stride: tl.tensor,
    block_bits: tl.tensor,
    table_stride: tl.tensor,
    out_token_stride: tl.tensor,
    out_head_stride: tl.tensor,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    COLUMNS: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    """One program for ROWS // GROUP tokens of a sequence and the query heads of one KV head."""
    tile, seq, kv_head = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    query_start = tl.load(query_starts + seq)
    queries = tl.load(query_starts + seq + 1) - query_start
    first_query = tile * (ROWS // GROUP)
    if first_query < queries:
        context = tl.load(context_lens + seq)
        rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
        query_ids = first_query + rows // GROUP
        # ROWS need not be a multiple of GROUP: the rows left over repeat the next token's.
        filled = (rows < ROWS // GROUP * GROUP) & (query_ids < queries)
        positions = context - queries + query_ids
        last_query = tl.minimum(first_query + ROWS // GROUP, queries) - 1
        stop = context - queries + last_query + 1

        heads = kv_head * GROUP + rows % GROUP
        tokens_in = (query_start + query_ids).to(tl.int64)[:, None]
        mask = filled[:, None] & (columns < HEAD_DIM)[None, :]
        q_offsets = tokens_in * q_token_stride + heads[:, None] * q_head_stride
        query = tl.load(q + q_offsets + columns[None, :], mask=mask, other=0)
        table = block_tables + seq * table_stride
        keys += kv_head * head_stride
        values += kv_head * head_stride

        peak = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        acc = tl.zeros([ROWS, COLUMNS], tl.float32)
        for first in range(0, stop, TILE):
            tokens = first + tl.arange(0, TILE)
            valid = tokens < stop
            offsets = row_offsets(table, tokens, valid, block_stride, slot_stride, block_bits)
            inside = valid[:, None] & (columns < HEAD_DIM)[None, :]
            k = load_tile(keys, offsets, columns, inside, query.dtype)
            v = load_tile(values, offsets, columns, inside, query.dtype)
            visible = valid[None, :] & (tokens[None, :] <= positions[:, None])
            peak, total, acc = softmax_step(query, k, v, visible, log2_scale, peak, total, acc)

        result = acc * (v_scale / total)[:, None]
        out_offsets = tokens_in * out_token_stride + heads[:, None] * out_head_stride
        target = out + out_offsets + columns[None, :]
        tl.store(target, result.to(out.dtype.element_ty), mask=mask)
