"""A block pool that keeps what was written, as long as it can, where a radix tree finds it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from backends.block_pool import BlockPool
from backends.radix_tree import Node, RadixTree


class RadixPool(BlockPool):
    """Free blocks that are in the tree are cached. Those that are not are given out first; then
    the tree evicts leaves, the least recently used first, from the end."""

    def __init__(self, num_blocks: int, block_tokens: int) -> None:
        super().__init__(num_blocks)
        self.evicted_blocks = 0
        self.num_cached_blocks = 0
        self.tree = RadixTree(block_tokens, self.is_held)
        self._block_tokens = block_tokens

    def is_held(self, block_id: int) -> bool:
        """Whether a table holds the block."""
        return self._references[block_id] > 0

    def insert(
        self, node: Node, tokens: bytes, table: list[int], first: int, last: int
    ) -> tuple[Node, list[int]]:
        """Makes `tokens`, which start with block number `first` of the path to `node` and lie in
        blocks `first` up to `last` of `table`, findable. Where the tree has them already the table
        takes over its blocks, and its own ones are free. Returns where the tokens end, and the
        blocks that were taken over."""
        depth = first * self._block_tokens
        inserted = self.tree.insert(node, depth, tokens, table[first:last])
        if inserted.superseded is not None:
            self.num_cached_blocks -= 1
            self._free.move_to_end(inserted.superseded, last=False)
        same = slice(first, first + len(inserted.existing))
        self.share(inserted.existing)
        table[same], mine = inserted.existing, table[same]
        self.give_back(mine)
        return inserted.node, inserted.existing

    def take_out(
        self, node: Node, blocks: int, down_to: int, written: set[int]
    ) -> tuple[Node, int]:
        """Block `down_to` of the path to `node`, and those after it that one table holds, are not
        found any longer: their tokens were not computed. Those that others use too stay, as do
        `written` ones. Returns the node and the number of blocks where the path ends then."""
        while blocks > down_to:
            leaf = node.at(blocks * self._block_tokens)
            ends_here = not leaf.children and leaf.stop == blocks * self._block_tokens
            if not ends_here or self.is_shared(leaf.blocks[-1]) or leaf.blocks[-1] in written:
                break
            blocks -= 1
            node = leaf.at(blocks * self._block_tokens)
            self.tree.drop_last(leaf)
        return node, blocks

    def take(self, count: int) -> list[int]:
        """As of any pool; cached blocks among them are evicted."""
        for _ in range(count - (len(self._free) - self.num_cached_blocks)):
            self._free.move_to_end(self.tree.evict(), last=False)
            self.num_cached_blocks -= 1
            self.evicted_blocks += 1
        return super().take(count)

    def _queue(self, block_id: int) -> None:
        super()._queue(block_id)
        if block_id in self.tree.block_ids:
            self.num_cached_blocks += 1
        else:
            self._free.move_to_end(block_id, last=False)

    def _unqueue(self, block_id: int) -> None:
        super()._unqueue(block_id)
        self.num_cached_blocks -= block_id in self.tree.block_ids

    def check_integrity(self, tables: Iterable[Sequence[int]]) -> None:
        super().check_integrity(tables)
        self.tree.check_integrity()
        cached = sum(not self.is_held(block_id) for block_id in self.tree.block_ids)
        assert self.num_cached_blocks == cached
