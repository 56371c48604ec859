"""Token runs in a radix tree, with the KV blocks that hold them (RadixAttention: Zheng et al.,
"SGLang", NeurIPS 2024, section 3).

A path from the root spells a sequence; block i of it holds tokens [i * B, (i + 1) * B). Runs part
at any token, blocks only at every B-th. So a node owns the blocks that *end* in its run: where two
sequences part inside a block, each child owns a block of its own that starts with the same tokens.
A leaf owns the block that its last token is in, full or not, and therefore every token of the tree
lies in a block at or below its node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

import numpy as np


class Node:
    """Tokens [start, stop) of a path, `run` as bytes, and the ids of the blocks that end there.

    Others may split it (it is the lower part then) or drop it, so who keeps a node keeps a depth
    too, up to which blocks are held, and asks for the node `at` that depth.
    """

    __slots__ = ("blocks", "children", "last_used", "parent", "queued", "run", "start", "stop")

    def __init__(self, parent: Node | None, start: int, stop: int, run: bytearray) -> None:
        self.parent = parent
        self.start = start
        self.stop = stop
        self.run = run
        self.blocks: list[int] = []
        self.children: dict[bytes, Node] = {}  # by first token
        self.last_used = 0
        self.queued = False

    def at(self, depth: int) -> Node:
        """The node of this path that has the token before `depth`; the root at 0. A dropped node
        still knows what was above it."""
        node = self
        while node.start >= depth and node.parent is not None:
            node = node.parent
        return node


class Inserted(NamedTuple):
    """Where an insert ended, the blocks of the tree that already held its first tokens, in order,
    and a partial block that is no longer needed: the new ones hold its tokens too."""

    node: Node
    existing: list[int]
    superseded: int | None


class RadixTree:
    """`is_held` says of a block whether it must not be evicted. Who holds a block must hold those
    before it on its path."""

    def __init__(self, block_tokens: int, is_held: Callable[[int], bool]) -> None:
        self.block_ids: set[int] = set()
        self._block_tokens = block_tokens
        self._is_held = is_held
        self._roots: dict[str, Node] = {}
        self.token_width = 0  # bytes, once a root is made
        self._clock = 0
        self._leaves: list[tuple[int, int, Node]] = []  # a heap; entries may be older than the leaf
        self._entry = count()

    def root(self, salt: str, token_width: int) -> Node:
        """The root of a cache of its own, of tokens that are so many bytes wide."""
        assert self.token_width in (0, token_width), "tokens are of one width"
        self.token_width = token_width
        return self._roots.setdefault(salt, Node(None, 0, 0, bytearray()))

    def match(self, node: Node, depth: int, tokens: bytes) -> tuple[Node, int]:
        """Follows `tokens` from `depth` in `node`: the last node reached, and how deep."""
        width, start = self.token_width, depth
        while True:
            done = (depth - start) * width
            depth += _common(node.run, (depth - node.start) * width, tokens, done) // width
            if depth < node.stop:
                return node, depth
            done = (depth - start) * width
            child = node.children.get(tokens[done : done + width])
            if child is None:
                return node, depth
            node = child

    def full_blocks(self, node: Node, depth: int, first: int = 0) -> list[int]:
        """Ids of the blocks of the path to `depth` in `node`, from number `first` on, that end at
        or before `depth`."""
        parts, last = [], depth // self._block_tokens
        step: Node | None = node.at(depth)
        while step is not None and last > first:
            base = step.start // self._block_tokens
            parts.append(step.blocks[max(first - base, 0) : last - base])
            last, step = min(last, base), step.parent
        return [block_id for part in reversed(parts) for block_id in part]

    def block_at(self, node: Node, depth: int) -> int:
        """A block that holds the token before `depth` in `node` with all before it in the block,
        `depth` being inside a block."""
        number = depth // self._block_tokens
        while number - node.start // self._block_tokens >= len(node.blocks):
            node = next(iter(node.children.values()))
        return node.blocks[number - node.start // self._block_tokens]

    def insert(self, node: Node, depth: int, tokens: bytes, block_ids: list[int]) -> Inserted:
        """Adds `tokens`, which go on from `depth` (a block's start) in `node`, and lie in
        `block_ids`. Where the tree has them already, its own blocks stay."""
        stop = depth + len(tokens) // self.token_width
        first = depth // self._block_tokens
        node, matched = self.match(node.at(depth), depth, tokens)
        existing = self.full_blocks(node, matched, first)
        superseded = None
        if matched < stop:
            rest = tokens[(matched - depth) * self.token_width :]
            added = block_ids[len(existing) :]
            node, superseded = self._add(node, matched, stop, rest, added)
        return Inserted(node, existing, superseded)

    def _add(
        self, node: Node, depth: int, stop: int, tokens: bytes, block_ids: list[int]
    ) -> tuple[Node, int | None]:
        superseded = None
        if depth < node.stop:
            node = self._split(node, depth)
        if node.children or node.parent is None:
            node = self._link(Node(node, depth, depth, bytearray()), tokens)
        elif depth % self._block_tokens:
            superseded = node.blocks.pop()
            self.block_ids.remove(superseded)
        node.run += tokens
        node.stop = stop
        node.blocks += block_ids
        self.block_ids.update(block_ids)
        return node, superseded

    def _link(self, node: Node, tokens: bytes | bytearray) -> Node:
        assert node.parent is not None
        node.parent.children[bytes(tokens[: self.token_width])] = node
        return node

    def _split(self, node: Node, depth: int) -> Node:
        """Parts a node in two and returns the upper one; the lower one stays the same object."""
        size = (depth - node.start) * self.token_width
        upper = Node(node.parent, node.start, depth, node.run[:size])
        upper.last_used = node.last_used
        owned = depth // self._block_tokens - node.start // self._block_tokens
        upper.blocks = node.blocks[:owned]
        self._link(upper, upper.run)
        del node.run[:size], node.blocks[:owned]
        node.parent, node.start = upper, depth
        self._link(node, node.run)
        return upper

    def use(self, node: Node, depth: int) -> Node:
        """A sequence has used the path to `depth` in `node`: blocks that end there or before become
        the most recently used. Returns the node that ends there now."""
        self._clock += 1
        node = node.at(depth)
        if depth < node.stop:
            node = self._split(node, depth)
        step: Node | None = node
        while step is not None:
            step.last_used = self._clock
            step = step.parent
        return node

    def let_go(self, node: Node) -> None:
        """The node's blocks may be held no longer: it can be evicted if it is a leaf."""
        if not node.queued and self._is_evictable(node):
            node.queued = True
            heappush(self._leaves, (node.last_used, next(self._entry), node))

    def _is_evictable(self, node: Node) -> bool:
        is_leaf = bool(node.blocks) and not node.children  # one that was dropped has no blocks
        return is_leaf and not self._is_held(node.blocks[-1])

    def evict(self) -> int:
        """Drops the last block of the least recently used leaf that nobody holds, and returns its
        id. There must be one."""
        while True:
            queued_for, _, leaf = heappop(self._leaves)
            leaf.queued = False
            if self._is_evictable(leaf) and leaf.last_used == queued_for:
                return self.drop_last(leaf)
            self.let_go(leaf)

    def drop_last(self, leaf: Node) -> int:
        """Drops the last block of a leaf, and the tokens that lie in no other block."""
        block_id = leaf.blocks.pop()
        self.block_ids.remove(block_id)
        number = leaf.start // self._block_tokens + len(leaf.blocks)
        self._cut(leaf, number * self._block_tokens)
        return block_id

    def _cut(self, leaf: Node, depth: int) -> None:
        """Drops a leaf's tokens from `depth` on, which may go back to before it."""
        while leaf.start >= depth:
            parent = leaf.parent
            assert parent is not None
            del parent.children[bytes(leaf.run[: self.token_width])]
            if parent.children or parent.parent is None:
                return
            leaf = parent
        del leaf.run[(depth - leaf.start) * self.token_width :]
        leaf.stop = depth
        self.let_go(leaf)

    def nodes(self) -> Iterator[Node]:
        """All nodes but the roots, parents first."""
        stack = [child for root in self._roots.values() for child in root.children.values()]
        while stack:
            node = stack.pop()
            yield node
            stack += node.children.values()

    def check_integrity(self) -> None:
        """Raises AssertionError where the tree is not what its module says."""
        owned = Counter[int]()
        for node in self.nodes():
            self._check_node(node)
            owned.update(node.blocks)
        assert set(owned) == self.block_ids, "blocks of nodes and of the tree differ"
        assert owned.total() == len(owned), "a block is in two places"
        entries = [(entry, leaf) for entry, _, leaf in self._leaves if leaf.blocks]
        assert all(leaf.queued and entry <= leaf.last_used for entry, leaf in entries)
        queued = [leaf for _, leaf in entries]
        assert len(queued) == len(set(queued)), "a leaf is queued twice"
        assert set(queued) >= set(filter(self._is_evictable, self.nodes())), "a leaf is not queued"

    def _check_node(self, node: Node) -> None:
        assert node.parent is not None
        assert node.start < node.stop
        assert node.parent.stop == node.start
        assert len(node.run) == (node.stop - node.start) * self.token_width
        assert node.parent.children[bytes(node.run[: self.token_width])] is node
        assert node.last_used <= node.parent.last_used
        ends = node.stop + (0 if node.children else self._block_tokens - 1)
        expected = ends // self._block_tokens - node.start // self._block_tokens
        assert len(node.blocks) == expected, "a node owns the blocks that end in its run"
        held = [self._is_held(block_id) for block_id in node.blocks]
        assert held == sorted(held, reverse=True), "a held block comes after one that is not"


def _common(run: bytearray, start: int, tokens: bytes, done: int) -> int:
    """How many bytes are alike from `start` in `run` and `done` in `tokens`."""
    if start == 0 and tokens.startswith(run, done):  # the whole run, as nearly always
        return len(run)
    size = min(len(run) - start, len(tokens) - done)
    if size == 0:
        return 0
    ours = np.frombuffer(run, np.uint8, size, start)
    differ = ours != np.frombuffer(tokens, np.uint8, size, done)
    first = int(differ.argmax())
    return first if differ[first] else size
