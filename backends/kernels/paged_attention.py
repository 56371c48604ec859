"""Attention over a paged KV cache on the device that it is on: Triton on a GPU, else torch.

A step of a layer is store_kv(k, v, cache, batch), then attend(q, cache, batch, scale).
"""

from __future__ import annotations

from torch import Tensor

from backends.kernels import torch_paged
from backends.kernels.base import KvCache, PagedBatch

# Triton is imported where a GPU is used: nothing else needs it, nor should wait for it.


def store_kv(k: Tensor, v: Tensor, cache: KvCache, batch: PagedBatch) -> None:
    """Writes the new tokens' K and V, each [tokens, kv_heads, head_dim]. Raises BackendError."""
    if not k.is_cuda:
        return torch_paged.store_kv(k, v, cache, batch.slot_mapping)
    from backends.kernels import store

    return store.store_kv(k, v, cache, batch.slot_mapping)


def attend(q: Tensor, cache: KvCache, batch: PagedBatch, scale: float) -> Tensor:
    """Causal attention of the new tokens, [tokens, heads, head_dim], over their sequences, whose
    new K and V are stored. `scale` multiplies q . k. Raises BackendError."""
    decodes = batch.longest_query == 1 and len(q) == len(batch.block_tables)
    if not q.is_cuda:
        attention = torch_paged.paged_decode if decodes else torch_paged.paged_prefill
        return attention(q, cache, batch, scale)
    if decodes:
        from backends.kernels import decode

        return decode.paged_decode(q, cache, batch, scale)
    from backends.kernels import prefill

    return prefill.paged_prefill(q, cache, batch, scale)
