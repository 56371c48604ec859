"""The binary buddy arena that the PagedAttention paper gives to Orca (section 6.1).

The budget is cut into power-of-two blocks of slots, largest first, so that one that is no power
of two is used to the last slot. A request takes the smallest free block that holds it, splits it
down to its own power of two, and merges with its buddy when freed.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import torch

from backends.arenas.base import ArenaUsage
from backends.base import KvLayout


class BuddyBlock(NamedTuple):
    """`size` slots from `offset`, of which `requested` were asked for, in `sizes` bytes."""

    offset: int
    size: int
    requested: int
    sizes: tuple[int, ...]


class BuddyArena:
    """Blocks of slots out of one tensor taken at the start."""

    error: str | None = None

    def __init__(self, layout: KvLayout) -> None:
        self._slot_bytes = layout.token_bytes
        self._slots = layout.budget_bytes // layout.token_bytes
        self._budget_bytes = layout.budget_bytes
        self.pool = torch.empty(
            self._slots * self._slot_bytes, dtype=torch.uint8, device=layout.device
        )
        self._free: dict[int, list[int]] = {}  # block size -> heap of offsets
        self._roots: dict[int, int] = {}  # offset -> size of the blocks that never merge further
        self._live: set[BuddyBlock] = set()
        self._cut_roots()

    def _cut_roots(self) -> None:
        offset = 0
        for bit in reversed(range(self._slots.bit_length())):
            self._free[1 << bit] = []
            if self._slots >> bit & 1:
                self._roots[offset] = 1 << bit
                self._free[1 << bit].append(offset)
                offset += 1 << bit

    def _requested(self, sizes: Sequence[int]) -> int:
        return -(-sum(sizes) // self._slot_bytes)

    def can_ever_allocate(self, sizes: Sequence[int], groups: int = 1) -> bool:
        wanted = _power_of_two(self._requested(sizes))
        return sum(root // wanted for root in self._roots.values()) >= groups

    def allocate(self, sizes: Sequence[int]) -> BuddyBlock | None:
        requested = self._requested(sizes)
        wanted = _power_of_two(requested)
        size = wanted
        while not self._free.get(size):
            size <<= 1
            if size > self._slots:
                return None
        offset = heapq.heappop(self._free[size])
        while size > wanted:
            size >>= 1
            heapq.heappush(self._free[size], offset + size)
        block = BuddyBlock(offset, wanted, requested, tuple(sizes))
        self._live.add(block)
        return block

    def release(self, buffers: BuddyBlock) -> None:
        self._live.remove(buffers)
        offset, size = buffers.offset, buffers.size
        while self._roots.get(offset) != size:
            buddy = offset ^ size
            if buddy not in self._free[size]:
                break
            self._free[size].remove(buddy)
            heapq.heapify(self._free[size])
            offset, size = min(offset, buddy), size << 1
        heapq.heappush(self._free[size], offset)

    def tensors(self, buffers: BuddyBlock) -> Sequence[torch.Tensor]:
        start = buffers.offset * self._slot_bytes
        return torch.split(self.pool[start : start + sum(buffers.sizes)], list(buffers.sizes))

    def usage(self) -> ArenaUsage:
        """The tail of the budget that is less than a slot counts as allocated."""
        free_slots = sum(size * len(offsets) for size, offsets in self._free.items())
        tail = self._budget_bytes - self._slots * self._slot_bytes
        return ArenaUsage(
            requested=sum(block.requested for block in self._live) * self._slot_bytes,
            allocated=sum(block.size for block in self._live) * self._slot_bytes + tail,
            free=free_slots * self._slot_bytes,
        )

    def check_integrity(self) -> None:
        free = [(offset, size) for size, offsets in self._free.items() for offset in offsets]
        blocks = sorted(free + [(block.offset, block.size) for block in self._live])
        end = 0
        for offset, size in blocks:
            assert offset == end, f"a gap or an overlap at slot {end}"
            end = offset + size
        assert end == self._slots, f"blocks cover {end} of {self._slots} slots"


def _power_of_two(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()
