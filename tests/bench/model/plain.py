"""Attention without a cache, for the tests that computed tokens are held to."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def causal(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention within one sequence, each KV head serving a group of query heads."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1)


def causal_over_fp8(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same over K and V as an fp8 cache would give them back, scales being 1."""
    fp8 = torch.float8_e4m3fn
    return causal(layer, q, k.to(fp8).to(k.dtype), v.to(fp8).to(v.dtype))
