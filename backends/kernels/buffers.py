"""Attention over buffers of consecutive slots, one a branch: scaled_dot_product_attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from backends.kernels.base import as_stored
from backends.kernels.sdpa import attend_consecutive


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
        scale = q.shape[-1] ** -0.5
        first = 0
        for planes, start, stop in self._rows:
            last = first + stop - start
            keys, values = planes[2 * layer], planes[2 * layer + 1]
            keys[start:stop] = as_stored(k[first:last], keys.dtype)
            values[start:stop] = as_stored(v[first:last], values.dtype)
            out[first:last] = attend_consecutive(q[first:last], keys[:stop], values[:stop], scale)
            first = last
        return out
