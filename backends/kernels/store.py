"""Writes new tokens' K and V into their slots of a paged cache."""

# mypy: disable-error-code="import-untyped,untyped-decorator"
# ruff: noqa: N803  # Triton names constants of a compiled kernel in capitals

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from backends.kernels.base import FP8, KvCache
from backends.kernels.checks import check_store
from backends.kernels.fp8 import encode_e4m3


def store_kv(k: Tensor, v: Tensor, cache: KvCache, slot_mapping: Tensor) -> None:
    """k, v: [tokens, kv_heads, head_dim]; slot_mapping: int64 [tokens], negative to skip. Slots
    must be different, and inside the cache. Raises BackendError."""
    check_store(k, v, cache, slot_mapping)
    tokens, kv_heads, head_dim = k.shape
    if tokens == 0:
        return
    is_fp8 = cache.keys.dtype == FP8
    keys, values = (part.view(torch.uint8) if is_fp8 else part for part in cache[:2])
    _store[(tokens,)](
        k,
        v,
        keys,
        values,
        slot_mapping,
        cache.k_scale,
        cache.v_scale,
        *k.stride()[:2],
        *v.stride()[:2],
        *keys.stride()[:3],
        cache.block_bits,
        ROW=kv_heads * head_dim,
        COLUMNS=triton.next_power_of_2(kv_heads * head_dim),
        HEAD_DIM=head_dim,
        FP8=is_fp8,
    )


@triton.jit
def _store(
    k: tl.tensor,
    v: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    slot_mapping: tl.tensor,
    k_scale: tl.tensor,
    v_scale: tl.tensor,
    k_token_stride: tl.tensor,
    k_head_stride: tl.tensor,
    v_token_stride: tl.tensor,
    v_head_stride: tl.tensor,
    block_stride: tl.tensor,
    slot_stride: tl.tensor,
    head_stride: tl.tensor,
    block_bits: tl.tensor,
    ROW: tl.constexpr,
    COLUMNS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    FP8: tl.constexpr,
) -> None:
    """One program a token, all heads."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping + token)
    if slot >= 0:
        columns = tl.arange(0, COLUMNS)
        heads, dims, mask = columns // HEAD_DIM, columns % HEAD_DIM, columns < ROW
        offset = slot & ((1 << block_bits) - 1)
        row = (slot >> block_bits) * block_stride + offset * slot_stride
        target = row + heads * head_stride + dims
        k_row = tl.load(k + token * k_token_stride + heads * k_head_stride + dims, mask=mask)
        v_row = tl.load(v + token * v_token_stride + heads * v_head_stride + dims, mask=mask)
        if FP8:
            k_row = encode_e4m3(k_row.to(tl.float32) / k_scale)
            v_row = encode_e4m3(v_row.to(tl.float32) / v_scale)
        tl.store(keys + target, k_row, mask=mask)
        tl.store(values + target, v_row, mask=mask)
