"""Checks of what kernels are given: a wrong stride or dtype would read other memory, silently."""

from __future__ import annotations

import torch
from torch import Tensor

from backends.base import BackendError
from backends.kernels.base import FP8, MAX_BLOCK_SIZE, MIN_BLOCK_SIZE, KvCache, PagedBatch

MODEL_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MAX_HEAD_DIM = 256


def check_store(k: Tensor, v: Tensor, cache: KvCache, slot_mapping: Tensor) -> None:
    """k, v: [tokens, kv_heads, head_dim]; slot_mapping: int64 [tokens]. Raises BackendError."""
    check_cache(cache, k.dtype)
    _, _, kv_heads, head_dim = cache.keys.shape
    for name, tensor in (("k", k), ("v", v)):
        _expect_shape(name, tensor, (len(slot_mapping), kv_heads, head_dim), "cache and slots")
        _expect(tensor.dtype == k.dtype, f"{name} has dtype {tensor.dtype}, but k has {k.dtype}")
        _expect_rows(name, tensor)
    _expect_index("slot_mapping", slot_mapping, (k.shape[0],), torch.int64)
    _expect_device(cache.keys, k=k, v=v, slot_mapping=slot_mapping)


def check_attention(q: Tensor, cache: KvCache, batch: PagedBatch, out: Tensor) -> None:
    """q, out: [tokens, heads, head_dim], heads a multiple of the cache's. Raises BackendError."""
    check_cache(cache, q.dtype)
    _, _, kv_heads, head_dim = cache.keys.shape
    _expect(
        q.ndim == 3 and q.shape[2] == head_dim and q.shape[1] % kv_heads == 0 and q.shape[1] > 0,
        f"q has shape {tuple(q.shape)}: give [tokens, heads, {head_dim}], with heads a multiple "
        f"of the cache's {kv_heads}",
    )
    _expect_rows("q", q)
    _expect_shape("out", out, tuple(q.shape), "q")
    _expect(out.dtype == q.dtype, f"out has dtype {out.dtype}, but q has {q.dtype}")
    _expect_rows("out", out)
    tables = batch.block_tables
    _expect(
        tables.ndim == 2 and tables.dtype == torch.int32 and tables.is_contiguous(),
        f"block_tables is {tables.dtype} of shape {tuple(tables.shape)}: give contiguous int32 "
        "[seqs, max_blocks]",
    )
    _expect_index("context_lens", batch.context_lens, (len(tables),), torch.int32)
    _expect(
        batch.longest_context <= tables.shape[1] * cache.block_size,
        f"longest_context={batch.longest_context} tokens do not fit block tables of "
        f"{tables.shape[1]} blocks of {cache.block_size}: give wider tables",
    )
    _expect_device(q, cache=cache.keys, out=out, block_tables=tables)
    _expect_device(q, context_lens=batch.context_lens)


def check_decode(q: Tensor, cache: KvCache, batch: PagedBatch, out: Tensor) -> None:
    """One query token a sequence. Raises BackendError."""
    check_attention(q, cache, batch, out)
    _expect(
        len(q) == len(batch.block_tables),
        f"q has {len(q)} tokens for {len(batch.block_tables)} sequences: decode takes one each; "
        "use paged_prefill for more",
    )


def check_prefill(q: Tensor, cache: KvCache, batch: PagedBatch, out: Tensor) -> None:
    """Any number of query tokens a sequence. Raises BackendError."""
    check_attention(q, cache, batch, out)
    seqs = len(batch.block_tables)
    _expect_index("query_starts", batch.query_starts, (seqs + 1,), torch.int32)
    _expect_device(q, query_starts=batch.query_starts)


def check_cache(cache: KvCache, dtype: torch.dtype) -> None:
    """Raises BackendError where the cache is none that queries of this dtype can read."""
    keys, values = cache.keys, cache.values
    allowed = ", ".join(str(each) for each in MODEL_DTYPES)
    _expect(dtype in MODEL_DTYPES, f"queries, k and v have dtype {dtype}: give one of {allowed}")
    _expect(keys.ndim == 4, f"the key cache has {keys.ndim} dimensions: give 4 (see KvCache)")
    _expect(
        keys.shape == values.shape and keys.stride() == values.stride(),
        f"the value cache has shape {tuple(values.shape)} and strides {values.stride()}, but the "
        f"key cache has {tuple(keys.shape)} and {keys.stride()}: lay both out alike",
    )
    _expect(
        keys.dtype == values.dtype and keys.dtype in (dtype, FP8),
        f"the caches have dtypes {keys.dtype} and {values.dtype}: give both {dtype}, as the "
        f"queries have, or {FP8}",
    )
    _expect_rows("the key cache", keys)
    size = keys.shape[1]
    _expect(
        MIN_BLOCK_SIZE <= size <= MAX_BLOCK_SIZE and size & (size - 1) == 0,
        f"block_size={size} tokens cannot be read: give a power of two from {MIN_BLOCK_SIZE} to "
        f"{MAX_BLOCK_SIZE}",
    )
    _expect(
        1 <= keys.shape[3] <= MAX_HEAD_DIM,
        f"head_dim={keys.shape[3]} is out of range: give 1 to {MAX_HEAD_DIM}",
    )
    _expect(
        cache.k_scale > 0 and cache.v_scale > 0,
        f"k_scale={cache.k_scale} and v_scale={cache.v_scale} must be above 0",
    )
    _expect_device(keys, value_cache=values)


def _expect(holds: bool, message: str) -> None:
    if not holds:
        raise BackendError(message)


def _expect_shape(name: str, tensor: Tensor, shape: tuple[int, ...], like: str) -> None:
    found = tuple(tensor.shape)
    _expect(found == shape, f"{name} has shape {found}: give {shape}, to fit {like}")


def _expect_index(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    _expect(
        tuple(tensor.shape) == shape and tensor.dtype == dtype and tensor.is_contiguous(),
        f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}: give contiguous {dtype} of "
        f"shape {shape}",
    )


def _expect_rows(name: str, tensor: Tensor) -> None:
    _expect(
        tensor.stride(-1) == 1 or tensor.shape[-1] == 1,
        f"{name} has strides {tensor.stride()}: its last dimension must be contiguous, call "
        ".contiguous() first",
    )


def _expect_device(home: Tensor, **others: Tensor) -> None:
    for name, tensor in others.items():
        _expect(
            tensor.device == home.device,
            f"{name} is on {tensor.device}, but the rest is on {home.device}: move it there",
        )
