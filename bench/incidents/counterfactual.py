"""Ground truth of an incident's layer: memory is changed for real, and the allocation tried again.

The rules (bench/incidents/rules.py) add counters up; this goes by the blocks that were there, in
the same caching allocator, in a process where nothing else holds memory. It is what tests hold
the rules to. The order of changes is in Note [Layers].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from bench.device.stats import hold_back
from bench.incidents.rules import Layer

PAGE_BYTES = 2 << 20
LEAST_BYTES = (1 << 20) + 512
"""Smaller blocks live in segments of their own: what is smaller is tried with some of what is taken
added to it."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Memory when an allocation failed, in bytes, blocks as they were asked for.

    `limit` is what bounds the request: the KV budget, of a pool its blocks, or what the process
    has of the card. `others` are blocks beside KV memory that it bounds too, `kv` those of KV
    memory, `live` what live tokens take in blocks of at most BLOCK_TOKENS. `wanted` was refused,
    for the sake of `needed` bytes: of a KV request the tokens that come, in such blocks, of
    activations all that the step needs at its peak. `pool` takes what sequences held out of a
    fresh pool of the same strategy and tries again.
    """

    limit: int
    others: Sequence[int]
    kv: Sequence[int]
    live: int
    wanted: int
    needed: int
    is_kv: bool
    pooled: bool
    pool: Callable[[], bool] | None = None


def first_change(moment: Moment) -> Layer:
    """The layer of the first change that lets the allocation succeed; capacity where none does."""
    return next((layer for layer, succeeds in _changes(moment) if succeeds()), Layer.CAPACITY)


def _changes(moment: Moment) -> Iterator[tuple[Layer, Callable[[], bool]]]:
    others, kv = sum(moment.others), sum(moment.kv)
    if moment.is_kv:
        in_one_piece = lambda: _fits(moment.limit, kv, moment.wanted)  # noqa: E731
        yield Layer.ALLOCATOR, moment.pool or in_one_piece
        yield Layer.KV_POLICY, lambda: _fits(moment.limit, moment.live, moment.needed)
        return
    # What a pool does not need for tokens stays the pool's.
    kept = kv if moment.pooled else moment.live
    yield Layer.ALLOCATOR, lambda: _fits(moment.limit, others + kv, moment.needed)
    yield Layer.KV_POLICY, lambda: _fits(moment.limit, others + kept, moment.needed)
    yield Layer.WORKSPACE, lambda: _fits(moment.limit, others, moment.needed)


def _fits(limit: int, used: int, wanted: int) -> bool:
    """Whether the allocator can give `wanted` bytes where `used` of `limit` are taken in one
    block, and so all that is free is in one piece: the rest of one segment."""
    torch.cuda.empty_cache()
    segment = -(-limit // PAGE_BYTES) * PAGE_BYTES
    free, _ = torch.cuda.mem_get_info()
    more = max(LEAST_BYTES - wanted, 0)
    pool = torch.cuda.MemPool()  # so that no block of another segment serves
    with hold_back(free - segment), torch.cuda.use_mem_pool(pool):
        succeeds = _serves(segment, max(used - more, 0) + segment - limit, wanted + more)
    del pool
    torch.cuda.empty_cache()
    return succeeds


def _serves(segment: int, used: int, wanted: int) -> bool:
    _block(segment)
    taken = _block(max(used, LEAST_BYTES)) if used else None
    try:
        _block(wanted)
    except torch.OutOfMemoryError:
        return False
    finally:
        del taken
    return True


def _block(nbytes: int) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device="cuda")
