"""Memory of one source: blocks of the caching allocator, counted and bounded.

A source has what was planned for it and, beyond that, a part in the headroom: what the division of
the card left to nobody. So KV memory stays as large as it was said to be, whatever the backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch


class Headroom:
    """What all sources may hold beyond what was planned for them, and hold now, in bytes. `frees`
    counts what was given back, by them or by sequences: a refused allocation is tried again only
    after it moved, since each try makes the caching allocator release its cached segments."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.frees = 0


class _Refused(NamedTuple):
    """The allocator refused so many bytes, saying `error`, when so much had been given back."""

    frees: int
    nbytes: int
    error: str


class Room:
    """What one source takes and gives. `held_bytes` is as asked for, before rounding;
    `allocations` and `refused` count takes' blocks and takes that were refused; `moves` tells
    when the allocator's state may have changed."""

    def __init__(self, headroom: Headroom, planned_bytes: int = 0) -> None:
        self.planned_bytes = planned_bytes
        self.held_bytes = 0
        self.peak_bytes = 0
        self.allocations = 0
        self.refused = 0
        self.moves = 0
        self.wanted_bytes: int | None = None  # of the last refusal, where it is known
        self.error: str | None = None  # what PyTorch said of it; None where a limit refused it
        self._headroom = headroom
        self._sizes: dict[int, int] = {}
        self._refused_at: _Refused | None = None

    def take(self, sizes: Sequence[int]) -> list[int] | None:
        """The addresses of blocks of these sizes in bytes, all of them or None."""
        total = sum(sizes)
        if not self.allows(total):
            self.refuse(total)
            return None
        if (refused := self._hopeless(total)) is not None:
            self.refuse(total, refused.error)
            return None
        self.moves += 1
        blocks = _allocate(sizes)
        if isinstance(blocks, str):
            self._refused_at = _Refused(self._headroom.frees, total, blocks)
            self.refuse(total, blocks)
            return None
        self._sizes.update(zip(blocks, sizes, strict=True))
        self.allocations += len(blocks)
        self.count(total)
        return blocks

    def give(self, blocks: Sequence[int]) -> None:
        """Gives blocks back."""
        if not blocks:
            return
        delete = torch._C._cuda_cudaCachingAllocator_raw_delete
        for block in blocks:
            self.count(-self._sizes.pop(block))
            delete(block)
        self._headroom.frees += 1
        self.moves += 1

    def give_all(self) -> None:
        """Gives back whatever is held."""
        self.give(list(self._sizes))

    def count(self, nbytes: int) -> None:
        """Counts memory that is the source's (or, negative, no longer is): blocks, and what a
        private pool of the allocator keeps."""
        self._headroom.used_bytes += self._beyond_plan(nbytes)
        self.held_bytes += nbytes
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)

    def allows(self, nbytes: int) -> bool:
        """Whether plan and headroom leave so much more."""
        headroom = self._headroom
        return headroom.used_bytes + self._beyond_plan(nbytes) <= headroom.limit_bytes

    def _beyond_plan(self, nbytes: int) -> int:
        """What of the next `nbytes` the headroom has to give or, negative, gets back."""
        planned, held = self.planned_bytes, self.held_bytes
        return max(0, held + nbytes - planned) - max(0, held - planned)

    @property
    def left_bytes(self) -> int:
        """What plan and headroom leave."""
        unused = max(0, self.planned_bytes - self.held_bytes)
        return unused + self._headroom.limit_bytes - self._headroom.used_bytes

    def refuse(self, nbytes: int | None, error: str | None = None) -> None:
        """Counts that so much was wanted and not had (None: not known), `error` being what PyTorch
        said."""
        self.refused += 1
        self.wanted_bytes = nbytes
        self.error = error

    def _hopeless(self, nbytes: int) -> _Refused | None:
        """The last refusal, if it was of no more than this and nothing was given back since."""
        refused = self._refused_at
        if refused is None or refused.frees != self._headroom.frees or nbytes < refused.nbytes:
            return None
        return refused


def _allocate(sizes: Sequence[int]) -> list[int] | str:
    """Addresses of blocks of these sizes, or what PyTorch says instead."""
    blocks: list[int] = []
    try:
        for size in sizes:
            blocks.append(torch._C._cuda_cudaCachingAllocator_raw_alloc(size, 0))
    except torch.OutOfMemoryError as error:
        for block in blocks:
            torch._C._cuda_cudaCachingAllocator_raw_delete(block)
        return str(error)
    return blocks
