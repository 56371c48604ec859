"""A block pool that finds full blocks again by what is in them.

A block's key is a hash chain: of its token ids and of the key before it, so that equal keys mean
equal prefixes (vLLM; PagedAttention, section 4.4). A block that no table holds keeps its key and
can be found until it is given out for something else, which happens as late as the queue allows:
blocks without a key are given out first, the others by least recent use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from backends.block_pool import BlockPool


class PrefixPool(BlockPool):
    """Blocks with keys. Of two blocks with one key only the first keeps it."""

    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self.evicted_blocks = 0
        self.num_cached_blocks = 0
        self._block_of: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}

    def find(self, keys: Iterable[bytes]) -> list[int]:
        """Blocks of the longest prefix of `keys` that is there."""
        found = []
        for key in keys:
            block_id = self._block_of.get(key)
            if block_id is None:
                break
            found.append(block_id)
        return found

    def num_unheld(self, block_ids: Iterable[int]) -> int:
        """How many of the blocks are in the free queue."""
        return sum(self._references[block_id] == 0 for block_id in block_ids)

    def register(self, block_id: int, key: bytes) -> None:
        """A held block is full: it can be found by its key from now on."""
        if key not in self._block_of and block_id not in self._key_of:
            self._block_of[key] = block_id
            self._key_of[block_id] = key

    def unregister(self, block_id: int) -> None:
        """A held block was not written after all."""
        key = self._key_of.pop(block_id, None)
        if key is not None:
            del self._block_of[key]

    def take(self, count: int) -> list[int]:
        """As of any pool; cached blocks among them are evicted."""
        block_ids = super().take(count)
        for block_id in block_ids:
            key = self._key_of.pop(block_id, None)
            if key is not None:
                del self._block_of[key]
                self.num_cached_blocks -= 1
                self.evicted_blocks += 1
        return block_ids

    def _queue(self, block_id: int) -> None:
        super()._queue(block_id)
        if block_id in self._key_of:
            self.num_cached_blocks += 1
        else:
            self._free.move_to_end(block_id, last=False)

    def _unqueue(self, block_id: int) -> None:
        super()._unqueue(block_id)
        self.num_cached_blocks -= block_id in self._key_of

    def check_integrity(self, tables: Iterable[Sequence[int]]) -> None:
        super().check_integrity(tables)
        assert {key: block for block, key in self._key_of.items()} == self._block_of
        assert self.num_cached_blocks == sum(block_id in self._key_of for block_id in self._free)
