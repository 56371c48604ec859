"""Attention of one sequence's newest tokens over consecutive K and V, in PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

PIECE_TOKENS = 256
"""New tokens behind others are computed so many at a time, none over what comes after its piece."""


def attend_consecutive(q: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Causal attention of q [new, heads, head_dim] over all of keys and values [tokens, kv_heads,
    head_dim], the last of which are those of q; shape of q."""
    new, earlier = len(q), len(keys) - len(q)
    keys, values = keys.to(q.dtype), values.to(q.dtype)
    if new == 1:
        return attend_ones(q, keys[None], values[None], scale)
    if not earlier:
        return _attend(q, keys, values, scale, None)
    out = torch.empty_like(q)
    for first in range(0, new, PIECE_TOKENS):
        last = min(first + PIECE_TOKENS, new)
        stop = earlier + last
        mask = torch.ones(last - first, stop, dtype=torch.bool, device=q.device)
        mask = mask.tril(earlier + first)
        out[first:last] = _attend(q[first:last], keys[:stop], values[:stop], scale, mask)
    return out


def attend_ones(
    q: Tensor, keys: Tensor, values: Tensor, scale: float, mask: Tensor | None = None
) -> Tensor:
    """One query token a sequence: q [seqs, heads, head_dim] over keys and values [seqs, tokens,
    kv_heads, head_dim], where `mask` [seqs, tokens] allows; shape of q.

    The heads that share K and V are rows of one product, so that K and V are read once.
    """
    seqs, heads, head_dim = q.shape
    kv_heads = keys.shape[2]
    grouped = q.reshape(seqs, kv_heads, heads // kv_heads, head_dim)
    attended = functional.scaled_dot_product_attention(
        grouped,
        keys.transpose(1, 2),
        values.transpose(1, 2),
        attn_mask=None if mask is None else mask[:, None, None],
        scale=scale,
    )
    return attended.reshape(q.shape)


def _attend(q: Tensor, keys: Tensor, values: Tensor, scale: float, mask: Tensor | None) -> Tensor:
    """Without a mask q attends causally, from the first token on. With fewer than four dimensions
    PyTorch would not take its fused kernel."""
    attended = functional.scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        keys.transpose(0, 1)[None],
        values.transpose(0, 1)[None],
        attn_mask=mask,
        is_causal=mask is None,
        scale=scale,
        enable_gqa=q.shape[1] != keys.shape[1],
    )
    return attended[0].transpose(0, 1)
