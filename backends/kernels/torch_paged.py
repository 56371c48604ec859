"""The kernels' functions in plain torch: blocks gathered through the table, then SDPA.

For machines without a GPU. Short sequences are padded and computed together; longer ones one by
one, without padding, so that a core's cache keeps what was gathered for the product.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise

import torch
from torch import Tensor
from torch.nn import functional

from backends.kernels.base import KvCache, PagedBatch, as_stored
from backends.kernels.checks import check_decode, check_prefill, check_store
from backends.kernels.sdpa import attend_consecutive, attend_ones

SHORT_TOKENS = 64
"""Up to here padding costs less than a product of its own for each sequence."""

GROUP_ELEMENTS = 1 << 20
"""Of K and of V of short sequences, gathered at a time: 4 MiB each in float32."""


def store_kv(k: Tensor, v: Tensor, cache: KvCache, slot_mapping: Tensor) -> None:
    """As backends.kernels.store.store_kv."""
    check_store(k, v, cache, slot_mapping)
    kept = slot_mapping >= 0
    if not kept.all():
        k, v, slot_mapping = k[kept], v[kept], slot_mapping[kept]
    place = slot_mapping // cache.block_size, slot_mapping % cache.block_size
    cache.keys[place] = as_stored(k, cache.keys.dtype, cache.k_scale)
    cache.values[place] = as_stored(v, cache.values.dtype, cache.v_scale)


def paged_decode(
    q: Tensor, cache: KvCache, batch: PagedBatch, scale: float, *, out: Tensor | None = None
) -> Tensor:
    """As backends.kernels.decode.paged_decode."""
    out = torch.empty_like(q) if out is None else out
    check_decode(q, cache, batch, out)
    _attend(q, cache, batch, list(range(len(q) + 1)), scale, out)
    return out


def paged_prefill(
    q: Tensor, cache: KvCache, batch: PagedBatch, scale: float, *, out: Tensor | None = None
) -> Tensor:
    """As backends.kernels.prefill.paged_prefill."""
    out = torch.empty_like(q) if out is None else out
    check_prefill(q, cache, batch, out)
    _attend(q, cache, batch, batch.query_starts.tolist(), scale, out)
    return out


def _attend(
    q: Tensor, cache: KvCache, batch: PagedBatch, starts: list[int], scale: float, out: Tensor
) -> None:
    """Writes every row of `out`; sequence i's are those from starts[i] up to starts[i + 1]."""
    contexts = batch.context_lens.tolist()
    queries = [stop - start for start, stop in pairwise(starts)]
    kv_width = cache.keys.shape[2] * cache.keys.shape[3]
    scale *= cache.k_scale
    for group in _groups(queries, contexts, kv_width):
        if len(group) > 1:
            _attend_together(q, cache, batch, starts, group, scale, out)
            continue
        (seq,) = group
        rows, context = slice(starts[seq], starts[seq + 1]), contexts[seq]
        if not context:
            out[rows] = 0
            continue
        table = batch.block_tables[seq, : -(-context // cache.block_size)]
        keys, values = (each.index_select(0, table).flatten(0, 1)[:context] for each in cache[:2])
        out[rows] = attend_consecutive(q[rows], keys, values, scale)
    if cache.v_scale != 1.0:
        out *= cache.v_scale


def _groups(queries: list[int], contexts: list[int], kv_width: int) -> Iterator[list[int]]:
    """Sequences with new tokens to compute together: short ones whose new tokens are less than
    twice as many as each other's, and any other alone."""

    def kind(seq: int) -> int:
        return queries[seq].bit_length() if contexts[seq] <= SHORT_TOKENS else -1

    asking = sorted((seq for seq, query in enumerate(queries) if query), key=kind)
    for query_bits, alike in groupby(asking, key=kind):
        members = list(alike)
        short = query_bits > 0
        at_once = max(1, GROUP_ELEMENTS // (kv_width * SHORT_TOKENS)) if short else 1
        for first in range(0, len(members), at_once):
            yield members[first : first + at_once]


def _attend_together(
    q: Tensor,
    cache: KvCache,
    batch: PagedBatch,
    starts: list[int],
    group: list[int],
    scale: float,
    out: Tensor,
) -> None:
    """Several sequences' rows of `out`, padded to the longest."""
    seqs = torch.tensor(group)
    first = torch.tensor(starts)
    sizes = first.diff()[seqs, None]
    contexts = batch.context_lens[seqs, None]
    steps = torch.arange(int(sizes.max()))
    real = steps < sizes
    steps = torch.minimum(steps, sizes - 1)  # padding repeats the last token
    rows = first[seqs, None] + steps
    longest = max(1, int(contexts.max()))
    seen = torch.arange(longest) < contexts
    keys, values = (_gather(each, batch.block_tables[seqs], seen, q.dtype) for each in cache[:2])
    if len(steps[0]) == 1:
        attended = attend_ones(q[rows[:, 0]], keys, values, scale, seen)
        out[rows[:, 0]] = attended.masked_fill_((contexts == 0)[..., None], 0)
        return
    positions = contexts - sizes + steps
    attended = functional.scaled_dot_product_attention(
        q[rows].transpose(1, 2),
        keys.transpose(1, 2),
        values.transpose(1, 2),
        attn_mask=(torch.arange(longest) <= positions[..., None])[:, None],
        scale=scale,
        enable_gqa=True,
    )
    out[rows[real]] = attended.transpose(1, 2)[real]


def _gather(cache: Tensor, tables: Tensor, seen: Tensor, dtype: torch.dtype) -> Tensor:
    """[seqs, tokens, kv_heads, head_dim]; zeros, whatever the cache has, where not `seen`."""
    size, tokens = cache.shape[1], seen.shape[1]
    block_ids = torch.where(seen[:, ::size], tables[:, : -(-tokens // size)], 0)
    rows = cache.index_select(0, block_ids.flatten()).view(len(tables), -1, *cache.shape[2:])
    rows = rows[:, :tokens].to(dtype)
    return rows.masked_fill_(~seen[..., None, None], 0)
