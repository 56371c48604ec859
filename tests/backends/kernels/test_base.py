"""The batch that a step's tables and lengths make."""

from __future__ import annotations

import torch

from backends.kernels.base import KvCache, PagedBatch


def test_new_tokens_are_the_last_of_their_context() -> None:
    batch = PagedBatch.of([[7, 3], [5], [2, 9, 4]], [19, 4, 33], [4, 4, 1], block_size=16)
    # Sequence 0's tokens 15 to 18: the last slot of block 7, then three of block 3.
    assert batch.slot_mapping.tolist() == [127, 48, 49, 50, 80, 81, 82, 83, 64]
    assert batch.query_starts.tolist() == [0, 4, 8, 9]
    assert batch.context_lens.tolist() == [19, 4, 33]
    first, second, third = batch.block_tables.tolist()
    assert (first[:2], second[:1], third) == ([7, 3], [5], [2, 9, 4])
    assert (batch.longest_context, batch.longest_query) == (33, 4)


def test_dtypes_are_those_that_kernels_take() -> None:
    batch = PagedBatch.of([[0]], [3], [3], block_size=8)
    assert [part.dtype for part in batch[:4]] == [torch.int32] * 3 + [torch.int64]


def test_an_empty_batch() -> None:
    batch = PagedBatch.of([], [], [], block_size=16)
    assert batch.query_starts.tolist() == [0]
    assert batch.slot_mapping.tolist() == []
    assert (batch.longest_context, batch.longest_query) == (0, 0)


def test_block_bits_are_the_logarithm_of_the_block_size() -> None:
    for bits in range(3, 9):
        part = torch.empty(1, 2**bits, 1, 8)
        cache = KvCache(part, part)
        assert (cache.block_size, cache.block_bits) == (2**bits, bits)
