"""Attention over buffers of consecutive slots, one a branch: scaled_dot_product_attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class Row(NamedTuple):
    """A branch's buffers, K and V of each layer in turn, each [slots, kv_heads, head_dim], and its
    new tokens, from `start` up to `stop`."""

    planes: Sequence[Tensor]
    start: int
    stop: int


class BufferAttention:
    """A backends.base.StepAttention. Nothing is shared: rows come one after the other."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = torch.empty_like(q)
        first = 0
        for row in self._rows:
            last = first + row.stop - row.start
            keys, values = row.planes[2 * layer : 2 * layer + 2]
            keys[row.start : row.stop] = k[first:last]
            values[row.start : row.stop] = v[first:last]
            out[first:last] = _attend(q[first:last], keys[: row.stop], values[: row.stop])
            first = last
        return out


def _attend(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """q [new, heads, head_dim] over all of keys and values [tokens, kv_heads, head_dim], the last
    of which are those of q."""
    new, tokens = len(q), len(keys)
    mask = None
    if 1 < new < tokens:
        mask = torch.ones(new, tokens, dtype=torch.bool, device=q.device).tril(tokens - new)
    attended = functional.scaled_dot_product_attention(
        q.transpose(0, 1),
        keys.to(q.dtype).transpose(0, 1),
        values.to(q.dtype).transpose(0, 1),
        attn_mask=mask,
        is_causal=new == tokens and new > 1,
        enable_gqa=q.shape[1] != keys.shape[1],
    )
    return attended.transpose(0, 1)
