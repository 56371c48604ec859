"""The kernels' functions in plain torch: blocks gathered through the table, then SDPA.

For machines without a GPU. New tokens are cut into pieces, and pieces of like length are padded
and computed together, so that neither padding nor masks outgrow the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from backends.kernels.base import FP8, FP8_MAX, KvCache, PagedBatch
from backends.kernels.checks import check_decode, check_prefill, check_store

PIECE_TOKENS = 256
GROUP_ELEMENTS = 1 << 24
"""Of K, of V and of the mask, gathered at a time: 64 MiB each in float32."""


def store_kv(k: Tensor, v: Tensor, cache: KvCache, slot_mapping: Tensor) -> None:
    """As backends.kernels.store.store_kv."""
    check_store(k, v, cache, slot_mapping)
    kept = slot_mapping >= 0
    slots = slot_mapping[kept]
    place = slots // cache.block_size, slots % cache.block_size
    cache.keys[place] = _as_stored(k[kept], cache.keys.dtype, cache.k_scale)
    cache.values[place] = _as_stored(v[kept], cache.values.dtype, cache.v_scale)


def _as_stored(x: Tensor, dtype: torch.dtype, scale: float) -> Tensor:
    if dtype != FP8:
        return x
    # PyTorch's cast has not always saturated: it gave NaN.
    return (x.float() / scale).clamp(-FP8_MAX, FP8_MAX).to(FP8)


def paged_decode(
    q: Tensor, cache: KvCache, batch: PagedBatch, scale: float, *, out: Tensor | None = None
) -> Tensor:
    """As backends.kernels.decode.paged_decode."""
    out = torch.empty_like(q) if out is None else out
    check_decode(q, cache, batch, out)
    contexts = batch.context_lens.long()
    seqs = torch.arange(len(q))
    pieces = _Pieces(seqs, seqs, torch.ones_like(seqs), contexts)
    _attend(q, cache, batch.block_tables, pieces, scale, out)
    return out.masked_fill_((contexts == 0)[:, None, None], 0)


def paged_prefill(
    q: Tensor, cache: KvCache, batch: PagedBatch, scale: float, *, out: Tensor | None = None
) -> Tensor:
    """As backends.kernels.prefill.paged_prefill."""
    out = torch.empty_like(q) if out is None else out
    check_prefill(q, cache, batch, out)
    _attend(q, cache, batch.block_tables, _cut(batch), scale, out)
    return out


class _Pieces(NamedTuple):
    """Runs of new tokens: int64 [pieces] each."""

    seqs: Tensor
    rows: Tensor
    """Of q, where the run starts."""

    sizes: Tensor
    stops: Tensor
    """Position in the sequence where the run ends."""


def _cut(batch: PagedBatch) -> _Pieces:
    """The batch's new tokens in pieces of at most PIECE_TOKENS."""
    starts = batch.query_starts.long()
    counts = (starts.diff() + PIECE_TOKENS - 1) // PIECE_TOKENS
    seqs = torch.repeat_interleave(counts)
    piece_of_seq = torch.arange(len(seqs)) - (counts.cumsum(0) - counts)[seqs]
    rows = starts[seqs] + piece_of_seq * PIECE_TOKENS
    ends = starts[seqs + 1]
    sizes = (ends - rows).clamp(max=PIECE_TOKENS)
    return _Pieces(seqs, rows, sizes, batch.context_lens[seqs] - (ends - rows - sizes))


def _groups(pieces: _Pieces, kv_width: int) -> Iterator[Tensor]:
    """Indices of pieces to compute together: less than twice as long as each other, in queries
    and (from 256 tokens on) in context, and as many as GROUP_ELEMENTS allow."""
    sizes, stops = pieces.sizes.tolist(), pieces.stops.tolist()

    def likeness(piece: int) -> tuple[int, int]:
        return sizes[piece].bit_length(), max(stops[piece], PIECE_TOKENS).bit_length()

    for (query_bits, context_bits), alike in groupby(
        sorted(range(len(sizes)), key=likeness), key=likeness
    ):
        members = list(alike)
        each = max(kv_width, 1 << query_bits) << context_bits
        at_once = max(1, GROUP_ELEMENTS // each)
        for first in range(0, len(members), at_once):
            yield torch.tensor(members[first : first + at_once])


def _attend(
    q: Tensor, cache: KvCache, tables: Tensor, pieces: _Pieces, scale: float, out: Tensor
) -> None:
    """Writes every piece's rows of `out`."""
    kv_width = cache.keys.shape[2] * cache.keys.shape[3]
    for members in _groups(pieces, kv_width):
        seqs, rows, sizes, stops = (each[members, None] for each in pieces)
        steps = torch.arange(int(sizes.max()))
        real = steps < sizes
        steps = torch.minimum(steps, sizes - 1)  # padding repeats the last token
        positions, query_rows = stops - sizes + steps, rows + steps
        longest = max(1, int(stops.max()))
        k = _gather(cache.keys, tables[seqs[:, 0]], stops, longest, q.dtype)
        v = _gather(cache.values, tables[seqs[:, 0]], stops, longest, q.dtype)
        attended = functional.scaled_dot_product_attention(
            q[query_rows].transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            attn_mask=(torch.arange(longest) <= positions[..., None])[:, None],
            scale=scale * cache.k_scale,
            enable_gqa=True,
        )
        out[query_rows[real]] = attended.transpose(1, 2)[real] * cache.v_scale


def _gather(
    cache: Tensor, tables: Tensor, stops: Tensor, longest: int, dtype: torch.dtype
) -> Tensor:
    """[pieces, longest, kv_heads, head_dim]; zeros, whatever the cache has, from `stops` on."""
    blocks = -(-longest // cache.shape[1])
    used = torch.arange(blocks) * cache.shape[1] < stops
    block_ids = torch.where(used, tables[:, :blocks], 0)
    rows = cache.index_select(0, block_ids.flatten()).view(len(tables), -1, *cache.shape[2:])
    rows = rows[:, :longest].to(dtype)
    rows[torch.arange(longest) >= stops] = 0
    return rows
