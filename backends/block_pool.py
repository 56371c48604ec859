"""A pool of fixed blocks of KV slots: who holds each, and in which order they are given out."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

NULL_BLOCK = 0
"""Never given out: kernels point padding at it."""


class BlockPool:
    """Blocks 1 to n-1 (block 0 is the null block), given out from the front of a free queue. A
    block is free while no table holds it."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = OrderedDict.fromkeys(range(1, num_blocks))
        self._references = [0] * num_blocks
        self.num_shared_references = 0
        """Table entries beyond the first of each block."""

    @property
    def num_free_blocks(self) -> int:
        """Blocks that can be given out, cached ones included."""
        return len(self._free)

    @property
    def num_usable_blocks(self) -> int:
        """Blocks that sequences can ever hold: all but the null block."""
        return self.num_blocks - 1

    @property
    def free_block_ids(self) -> list[int]:
        """The free queue, next block first."""
        return list(self._free)

    def take(self, count: int) -> list[int]:
        """The next `count` blocks of the free queue, which must have them."""
        block_ids = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block_id in block_ids:
            self._references[block_id] = 1
        return block_ids

    def share(self, block_ids: Iterable[int]) -> None:
        """Adds blocks that are held, or were and still have what was written, to one more table."""
        for block_id in block_ids:
            if self._references[block_id] == 0:
                self._unqueue(block_id)
            else:
                self.num_shared_references += 1
            self._references[block_id] += 1

    def is_shared(self, block_id: int) -> bool:
        """Whether several tables hold the block."""
        return self._references[block_id] > 1

    def give_back(self, block_ids: Sequence[int]) -> None:
        """Drops a table, last block first (as vLLM does), so that the start of a sequence, which
        others may share, is reused last."""
        for block_id in reversed(block_ids):
            assert self._references[block_id] > 0, f"block {block_id} is freed twice"
            self._references[block_id] -= 1
            if self._references[block_id] == 0:
                self._queue(block_id)
            else:
                self.num_shared_references -= 1

    def _queue(self, block_id: int) -> None:
        self._free[block_id] = None

    def _unqueue(self, block_id: int) -> None:
        del self._free[block_id]

    def check_integrity(self, tables: Iterable[Sequence[int]]) -> None:
        """Raises AssertionError unless every block is free or held, and every reference count is
        the number of tables that hold the block."""
        held = Counter(block_id for table in tables for block_id in table)
        counted = {block_id: n for block_id, n in enumerate(self._references) if n}
        assert counted == dict(held), "reference counts and tables differ"
        assert self.num_shared_references == held.total() - len(held)
        assert sorted([*held, *self._free]) == list(range(1, self.num_blocks)), "blocks are lost"
