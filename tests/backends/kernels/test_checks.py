"""What kernels refuse: one sentence that names what is wrong and what would do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from backends.base import BackendError
from backends.kernels import decode, prefill, store
from backends.kernels.base import FP8, KvCache, PagedBatch
from backends.kernels.torch_paged import paged_decode, paged_prefill, store_kv

PART = torch.zeros(4, 16, 2, 64)
CACHE = KvCache(PART, PART.clone())
BATCH = PagedBatch.of([[0, 1], [2]], [20, 3], [1, 1], 16)
Q = torch.zeros(2, 8, 64)
K = torch.zeros(2, 2, 64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": Q.double()}, r"dtype torch.float64: give one of torch.float32, torch.float16"),
        ({"q": Q[:, :, :32]}, r"q has shape \(2, 8, 32\): give \[tokens, heads, 64\]"),
        ({"q": Q[:, :3]}, r"q has shape \(2, 3, 64\).* a multiple of the cache's 2"),
        ({"q": Q.half()}, r"caches have dtypes torch.float32.*: give both torch.float16"),
        ({"q": Q.transpose(0, 2).contiguous().transpose(0, 2)}, r"q has strides .*contiguous"),
        ({"q": Q[:1]}, r"1 tokens for 2 sequences.*use paged_prefill"),
        ({"out": Q[:1]}, r"out has shape \(1, 8, 64\): give \(2, 8, 64\), to fit q"),
        ({"out": Q.half()}, r"out has dtype torch.float16, but q has torch.float32"),
        ({"out": Q.to("meta")}, r"out is on meta, but the rest is on cpu"),
        ({"cache": KvCache(PART[:, :12], PART[:, :12])}, r"block_size=12 .*power of two from 8"),
        ({"cache": KvCache(PART[:, :4], PART[:, :4])}, r"block_size=4 .*from 8 to 256"),
        ({"cache": KvCache(PART, PART[:2])}, r"lay both out alike"),
        ({"cache": KvCache(PART[0], PART[0])}, r"key cache has 3 dimensions: give 4"),
        ({"cache": KvCache(PART, PART.to(FP8))}, r"give both torch.float32"),
        ({"cache": CACHE._replace(k_scale=0.0)}, r"k_scale=0.0 .*above 0"),
        ({"tables": BATCH.block_tables.long()}, r"block_tables is torch.int64.*int32"),
        ({"context_lens": BATCH.context_lens[:1]}, r"context_lens .*shape \(1,\).*shape \(2,\)"),
        ({"longest_context": 33}, r"longest_context=33 tokens do not fit .* 2 blocks of 16"),
    ],
)
def test_decode_refuses(change: dict[str, Any], message: str) -> None:
    batch = BATCH._replace(
        block_tables=change.pop("tables", BATCH.block_tables),
        context_lens=change.pop("context_lens", BATCH.context_lens),
        longest_context=change.pop("longest_context", BATCH.longest_context),
    )
    arguments: dict[str, Any] = {"q": Q, "cache": CACHE} | change
    with pytest.raises(BackendError, match=message):
        paged_decode(batch=batch, scale=1.0, **arguments)


def test_prefill_refuses_starts_of_another_batch() -> None:
    batch = BATCH._replace(query_starts=BATCH.query_starts[:2])
    with pytest.raises(BackendError, match=r"query_starts .*shape \(2,\).*shape \(3,\)"):
        paged_prefill(Q, CACHE, batch, 1.0)


@pytest.mark.parametrize(
    ("k", "v", "slots", "message"),
    [
        (K[:1], K, BATCH.slot_mapping, r"k has shape \(1, 2, 64\): give \(2, 2, 64\)"),
        (K, K.half(), BATCH.slot_mapping, r"v has dtype torch.float16, but k has torch.float32"),
        (K, K, BATCH.slot_mapping.int(), r"slot_mapping is torch.int32.*torch.int64"),
        (K, K, BATCH.slot_mapping.to("meta"), r"slot_mapping is on meta"),
    ],
)
def test_store_refuses(k: torch.Tensor, v: torch.Tensor, slots: torch.Tensor, message: str) -> None:
    with pytest.raises(BackendError, match=message):
        store_kv(k, v, CACHE, slots)


def test_the_kernels_refuse_the_same() -> None:
    thin = KvCache(PART[:, :4], PART[:, :4])
    with pytest.raises(BackendError, match="block_size=4"):
        decode.paged_decode(Q, thin, BATCH, 1.0)
    with pytest.raises(BackendError, match="block_size=4"):
        prefill.paged_prefill(Q, thin, BATCH, 1.0)
    with pytest.raises(BackendError, match="block_size=4"):
        store.store_kv(K, K, thin, BATCH.slot_mapping)
    for splits in (0, 65):
        with pytest.raises(BackendError, match=rf"splits={splits} is out of range: give 1 to 64"):
            decode.paged_decode(Q, CACHE, BATCH, 1.0, splits=splits)
