"""Paged blocks, found again token by token in a radix tree (SGLang's RadixAttention)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from backends.base import BackendError, Demand, Hold, TokenIds, Usage
from backends.block_pool import BlockPool
from backends.paged import Paged
from backends.radix_pool import RadixPool
from backends.radix_tree import Node


class PagedRadix(Paged):
    """A hit is the longest prefix that any sequence had, but for the last token, whose logits
    somebody has to compute. Its full blocks are shared; where it ends inside a block, that part is
    copied into a block of the sequence's own. With `partial_blocks=False` it ends at a block, as
    SGLang's does where a page has more than one token.

    A full block can be found as soon as the step that fills it is scheduled (as in `paged_prefix`,
    so that the two differ in what they match), a partial last one when its sequence is freed. A
    sequence that is to write what the tree has already uses the tree's block instead, as in SGLang.
    """

    caches_prefixes: ClassVar[bool] = True

    def __init__(
        self,
        *,
        name: str = "paged_radix",
        block_size: int = 16,
        partial_blocks: bool = True,
        watermark: float = 0.0,
        alloc_conf: str = "",
    ) -> None:
        super().__init__(
            name=name, block_size=block_size, watermark=watermark, alloc_conf=alloc_conf
        )
        if not isinstance(partial_blocks, bool):
            raise BackendError(
                f"backend.partial_blocks={partial_blocks!r} is not known: give true to find the "
                "first tokens of a block, or false to find whole blocks alone"
            )
        self._partial_blocks = partial_blocks
        self._paths: dict[int, _Path] = {}
        self._unwritten: set[int] = set()  # blocks that the step to come will fill

    def _make_pool(self, num_blocks: int) -> BlockPool:
        self._radix = RadixPool(num_blocks, self.block_tokens)
        return self._radix

    @property
    def evicted_blocks(self) -> int:  # type: ignore[override]
        """Cached blocks that were given to other content."""
        return self._radix.evicted_blocks

    def lookup(self, tokens: int, demand: Demand) -> int:
        node, common = self._match(tokens, demand)
        return self._found(node, common, tokens)[0]

    def _match(self, tokens: int, demand: Demand) -> tuple[Node, int]:
        """Where the longest common prefix with the first `tokens` tokens ends, and its length."""
        token_ids = _token_ids(demand)
        root = self._radix.tree.root(demand.cache_salt, len(token_ids(0, 1)))
        return self._radix.tree.match(root, 0, token_ids(0, demand.identified(tokens)))

    def _found(self, node: Node, common: int, tokens: int) -> tuple[int, int | None]:
        """The part of a common prefix that need not be computed, and the block that holds its last
        tokens where these are to be copied."""
        found = min(common, tokens - 1)
        if not self._partial_blocks:
            return found - found % self.block_tokens, None
        whole = common - common % self.block_tokens
        if found <= whole:
            return found, None
        source = self._radix.tree.block_at(node.at(found), found)
        return (whole, None) if source in self._unwritten else (found, source)

    def reserve(self, sequence: int, tokens: int, room: int, demand: Demand) -> Hold | None:
        node, common = self._match(room, demand)
        cached, source = self._found(node, common, room)
        shared = self._radix.tree.full_blocks(node, common)
        held = sum(self._radix.is_held(block_id) for block_id in shared)
        wanted = self._blocks_in_all(room, demand) - held
        if wanted > self._radix.num_free_blocks - self._spare_blocks:
            self._refuse(wanted)
            return None
        self._radix.share(shared)
        shared_tokens = len(shared) * self.block_tokens
        path = _Path(node.at(shared_tokens), len(shared), demand)
        written = max(tokens, cached, shared_tokens)
        table = shared + self._radix.take(self._blocks(written) - len(shared))
        hold = self._hold(sequence, table, written)
        self._paths[sequence] = path
        self._insert_full(path, table, written)
        if source is None:
            return hold._replace(cached_tokens=cached)
        self._copy(source, table[len(shared)], cached - shared_tokens)
        copied = (cached - shared_tokens) * self._layout.token_bytes
        return hold._replace(cached_tokens=cached, copied_bytes=copied, copies=1)

    def extend(
        self, sequence: int, tokens: int, parents: Sequence[int] | None = None
    ) -> Hold | None:
        hold = super().extend(sequence, tokens, parents)
        if hold is not None:
            path, tables = self._paths[sequence], self._held[sequence].tables
            path.forked |= len(tables) > 1
            if not path.forked:
                self._insert_full(path, tables[0], tokens)
        return hold

    def free(self, sequence: int, computed: int = 0) -> None:
        path, table = self._paths.pop(sequence), self._held[sequence].tables[0]
        full = computed // self.block_tokens
        stop = min(computed if self._partial_blocks else full * self.block_tokens, path.identified)
        if not path.forked:
            path.node, path.blocks = self._radix.take_out(
                path.node, path.blocks, max(full, path.found), path.taken_over
            )
            self._insert(path, table, stop)
        depth = path.blocks * self.block_tokens
        self._unwritten.difference_update(table)
        end = self._radix.tree.use(path.node, depth if path.forked else max(depth, stop))
        super().free(sequence, computed)
        self._radix.tree.let_go(end)

    def _insert_full(self, path: _Path, table: list[int], tokens: int) -> None:
        """The full blocks of the sequence's first `tokens` tokens can be found."""
        first, last = path.blocks, min(tokens, path.identified) // self.block_tokens
        self._insert(path, table, last * self.block_tokens)
        self._unwritten.update(table[first:last])
        self._unwritten -= path.taken_over

    def _insert(self, path: _Path, table: list[int], stop: int) -> None:
        """The sequence's tokens can be found up to `stop`."""
        start = path.blocks * self.block_tokens
        if stop > start:
            tokens = path.token_ids(start, stop)
            last = self._blocks(stop)
            path.node, others = self._radix.insert(path.node, tokens, table, path.blocks, last)
            path.taken_over.update(others)
            path.blocks = stop // self.block_tokens

    def computed(self) -> None:
        self._unwritten.clear()

    def usage(self) -> Usage:
        paged = super().usage()
        cached = self._radix.num_cached_blocks * self._block_bytes
        return paged._replace(cached=cached, free=paged.free - cached)

    def check_integrity(self) -> None:
        super().check_integrity()
        for sequence, path in self._paths.items():
            table = self._held[sequence].tables[0]
            found = self._radix.tree.full_blocks(path.node, path.blocks * self.block_tokens)
            assert found == table[: path.blocks], "a table and the tree differ"


class _Path:
    """A sequence in the tree: the first `blocks` of its table are those of the path to `node`. Of
    these it found the first `found`, and the ones in `taken_over` when it was to write them. A
    forked one's later tokens are nobody else's prefix: its tokens have ids up to `identified`."""

    def __init__(self, node: Node, blocks: int, demand: Demand) -> None:
        self.node = node
        self.blocks = blocks
        self.found = blocks
        self.token_ids = _token_ids(demand)
        self.identified = demand.identified(1 << 62)
        self.taken_over: set[int] = set()
        self.forked = False


def _token_ids(demand: Demand) -> TokenIds:
    assert demand.token_ids is not None, "prefix caching needs the tokens' ids"
    return demand.token_ids
