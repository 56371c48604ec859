"""A pool of fixed blocks of KV slots: who owns each, and in which order they are given out."""

from __future__ import annotations

from collections import deque

NULL_BLOCK = 0
"""Never given out: kernels point padding at it."""


class BlockPool:
    """Blocks 1 to n-1 (block 0 is the null block), given out first in, first out."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = deque(range(1, num_blocks))
        self._owned = [False] * num_blocks

    @property
    def num_free_blocks(self) -> int:
        return len(self._free)

    @property
    def num_usable_blocks(self) -> int:
        """Blocks that sequences can ever hold: all but the null block."""
        return self.num_blocks - 1

    def take(self, count: int) -> list[int]:
        """The next `count` blocks of the free queue, which must have them."""
        block_ids = [self._free.popleft() for _ in range(count)]
        for block_id in block_ids:
            self._owned[block_id] = True
        return block_ids

    def give_back(self, block_ids: list[int]) -> None:
        """Appends a sequence's blocks to the free queue, last block first (as vLLM does), so that
        the start of a sequence, which others may share, is reused last."""
        for block_id in reversed(block_ids):
            assert self._owned[block_id], f"block {block_id} is freed twice"
            self._owned[block_id] = False
            self._free.append(block_id)

    def check_integrity(self, tables: list[list[int]]) -> None:
        """Raises AssertionError unless each block is free or in exactly one table."""
        owned = [block_id for table in tables for block_id in table]
        assert len(owned) == len(set(owned)), "a block is in two tables"
        assert sorted([*owned, *self._free]) == list(range(1, self.num_blocks)), "blocks are lost"
        assert sum(self._owned) == len(owned), "ownership and tables differ"
