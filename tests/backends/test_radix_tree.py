"""The radix tree alone: what it matches, which blocks it keeps, and which it lets go first."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.radix_tree import Node, RadixTree


class Sequences:
    """Sequences of one-letter tokens that come to a tree and go, each holding its blocks."""

    def __init__(self, block_tokens: int, width: int = 1) -> None:
        self.size = block_tokens
        self.width = width
        self.held: list[int] = []
        self.tree = RadixTree(block_tokens, lambda block_id: block_id in self.held)
        self.root = self.tree.root("", width)
        self._new = itertools.count(1)

    def letters(self, text: str) -> bytes:
        return b"".join(ord(letter).to_bytes(self.width, "big") for letter in text)

    def match(self, text: str) -> int:
        return self.tree.match(self.root, 0, self.letters(text))[1]

    def add(self, text: str) -> tuple[Node, list[int]]:
        """Holds the blocks of `text`, found or new, its partial last one among them."""
        node, matched = self.tree.match(self.root, 0, self.letters(text))
        blocks = self.tree.full_blocks(node, matched)
        depth = len(blocks) * self.size
        new = [next(self._new) for _ in range(-(-len(text) // self.size) - len(blocks))]
        node, existing, _ = self.tree.insert(node, depth, self.letters(text[depth:]), new)
        assert existing == [], "all that was there was found"
        self.held += blocks + new
        return node, blocks + new

    def end(self, text: str, node: Node, blocks: list[int]) -> None:
        end = self.tree.use(node, len(text))
        for block_id in blocks:
            self.held.remove(block_id)
        self.tree.let_go(end)

    def put(self, text: str) -> list[int]:
        """A sequence that comes and goes; the blocks it had."""
        node, blocks = self.add(text)
        self.end(text, node, blocks)
        self.tree.check_integrity()
        return blocks


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_a_match_is_exact_to_the_token(block_size: int) -> None:
    sequences = Sequences(block_size)
    for text in ("abcdefghij", "abcdexyz", "bcd"):
        sequences.put(text)
    for text, length in (
        ("abcdefghij", 10),
        ("abcdefghijk", 10),
        ("abcdefgxxx", 7),
        ("abcdexyyyy", 7),
        ("abcde", 5),
        ("abx", 2),
        ("bcda", 3),
        ("c", 0),
        ("", 0),
    ):
        assert sequences.match(text) == length


def test_tokens_of_several_bytes_are_compared_whole() -> None:
    """0x0161 and 0x0162 ('š' less one bit and so on) share their first byte and nothing else."""
    sequences = Sequences(2, width=2)
    sequences.put("\u0161\u0162")
    assert sequences.match("\u0161\u0163") == 1
    assert sequences.match("\u0162") == 0


def test_paths_that_part_inside_a_block_own_a_block_each() -> None:
    sequences = Sequences(4)
    sequences.tree.insert(sequences.root, 0, b"abcdefghij", [1, 2, 3])  # abcd efgh ij
    second = sequences.tree.insert(sequences.root, 0, b"abcdefxyz", [7, 8, 9])  # abcd efxy z
    assert second.existing == [1], "block 7 is not needed"
    shared = sequences.tree.match(sequences.root, 0, b"abcdef")[0]
    assert (shared.start, shared.stop, shared.blocks) == (0, 6, [1])
    children = {bytes(child.run): child.blocks for child in shared.children.values()}
    assert children == {b"ghij": [2, 3], b"xyz": [8, 9]}


def test_a_longer_sequence_takes_over_a_partial_last_block() -> None:
    sequences = Sequences(4)
    assert sequences.put("abcdef") == [1, 2]
    result = sequences.tree.insert(sequences.root, 0, b"abcdefgh", [8, 9])
    assert (result.existing, result.superseded) == ([1], 2)
    assert sequences.tree.block_ids == {1, 9}, "block 9 holds what 2 and 8 held"
    assert sequences.match("abcdefgh") == 8


def test_what_is_there_already_stays_in_its_blocks() -> None:
    sequences = Sequences(2)
    sequences.put("abcd")
    node, existing, superseded = sequences.tree.insert(sequences.root, 0, b"abcdef", [7, 8, 9])
    assert (existing, superseded) == ([1, 2], None)
    assert sequences.tree.full_blocks(node, 6) == [1, 2, 9]
    assert sequences.tree.full_blocks(node, 6, first=1) == [2, 9]
    assert sequences.tree.full_blocks(node, 5) == [1, 2]


def test_caches_of_different_salts_are_apart() -> None:
    sequences = Sequences(2)
    sequences.put("abcd")
    other = sequences.tree.root("other", 1)
    assert sequences.tree.match(other, 0, b"abcd") == (other, 0)
    sequences.tree.insert(other, 0, b"abcd", [8, 9])
    assert sequences.tree.full_blocks(sequences.tree.match(other, 0, b"abcd")[0], 4) == [8, 9]


def test_leaves_go_by_least_recent_use_and_inner_nodes_after_them() -> None:
    """Blocks of two: `ab` is 1, `cd` 2, `ef` 3, `xy` 4; using `abcd` again leaves `xy` behind."""
    sequences = Sequences(2)
    sequences.put("abcdef")
    sequences.put("abxy")
    sequences.put("abcd")
    assert [sequences.tree.evict() for _ in range(4)] == [3, 4, 2, 1]
    assert sequences.match("abcdef") == 0
    sequences.tree.check_integrity()


def test_a_leaf_goes_from_its_end_and_as_far_as_it_is_not_held() -> None:
    sequences = Sequences(2)
    node, blocks = sequences.add("abcd")
    sequences.put("abcdefgh")
    sequences.put("x")
    assert [sequences.tree.evict() for _ in range(3)] == [4, 3, 5]
    assert sequences.match("abcdefgh") == 4
    with pytest.raises(IndexError):
        sequences.tree.evict()
    sequences.end("abcd", node, blocks)
    assert [sequences.tree.evict() for _ in range(2)] == [2, 1]


def test_tokens_go_with_the_last_block_that_has_them() -> None:
    """`ab` of the second block is in the blocks of both branches: after one goes it is found in the
    other, after both it is not."""
    sequences = Sequences(4)
    sequences.put("0123abcd")
    sequences.put("0123abxy")
    sequences.tree.evict()
    assert sequences.match("0123abcd") == 6
    sequences.tree.evict()
    assert sequences.match("0123abcd") == 4
    sequences.tree.check_integrity()


def test_a_node_that_was_dropped_knows_what_was_above_it() -> None:
    sequences = Sequences(2)
    node, blocks = sequences.add("ab")
    sequences.put("abcdef")
    sequences.put("abcd")  # splits: `node` is now the part after it
    assert [sequences.tree.evict() for _ in range(2)] == [3, 2]
    assert sequences.tree.full_blocks(node, 2) == blocks
    again = sequences.tree.insert(node, 2, b"xy", [9])
    assert sequences.tree.full_blocks(again.node, 4) == [1, 9]
    assert sequences.match("abxy") == 4


class Oracle:
    """Blocks, each with all tokens up to its end, and when it was used last."""

    def __init__(self) -> None:
        self.text: dict[int, str] = {}
        self.used: dict[int, int] = {}

    def match(self, text: str) -> int:
        """The longest common prefix with what lies in any block."""
        both = [(text, other) for other in self.text.values()]
        return max((_common(a, b) for a, b in both), default=0)

    def use(self, text: str, now: int) -> None:
        for block_id, held in self.text.items():
            if text.startswith(held):
                self.used[block_id] = now

    def victim(self, held: list[int]) -> int | None:
        """Of the blocks that nobody holds and that no other goes on from, the least used one."""
        ends = [
            block_id
            for block_id, text in self.text.items()
            if block_id not in held
            and not any(t.startswith(text) for b, t in self.text.items() if b != block_id)
        ]
        return min(ends, key=self.used.__getitem__, default=None)


def _common(a: str, b: str) -> int:
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))
    return len(list(same))


texts = st.text("ab", min_size=1, max_size=14)
lives = st.lists(
    st.one_of(
        st.tuples(st.just("come"), texts),
        st.tuples(st.just("leave"), st.integers(0, 9)),
        st.tuples(st.just("evict"), st.integers(1, 4)),
    ),
    max_size=40,
)


@pytest.mark.parametrize("block_size", [1, 3, 4, 16])
@settings(max_examples=200, deadline=None)
@given(steps=lives, probes=st.lists(texts, min_size=3, max_size=3))
def test_the_tree_does_what_a_list_of_all_blocks_would(
    block_size: int, steps: list[tuple[str, str | int]], probes: list[str]
) -> None:
    life = Life(block_size)
    for action, value in steps:
        getattr(life, action)(value)
        life.tree.check_integrity()
        assert life.tree.block_ids == set(life.oracle.text)
        for probe in probes:
            assert life.match(probe) == life.oracle.match(probe)
    while life.live:
        life.leave(0)
    life.evict(len(life.oracle.text))
    assert not life.tree.block_ids
    assert list(life.tree.nodes()) == []


class Life(Sequences):
    """Sequences as the backend has them: their full blocks are in the tree while they live, the
    partial last one from their end on. Every action has a time of its own."""

    def __init__(self, block_tokens: int) -> None:
        super().__init__(block_tokens)
        self.oracle = Oracle()
        self.live: list[tuple[str, Node, list[int]]] = []
        self._now = itertools.count(1)

    def come(self, text: str) -> None:
        full = text[: len(text) // self.size * self.size]
        node, blocks = self.add(full)
        self._record(full, blocks)
        self.live.append((text, node, blocks))

    def leave(self, which: int) -> None:
        if self.live:
            text, node, blocks = self.live.pop(which % len(self.live))
            tail = text[len(blocks) * self.size :]
            if tail:
                node = self._add_tail(text, tail, node, blocks)
            self.end(text, node, blocks)
            self.oracle.use(text, next(self._now))

    def _add_tail(self, text: str, tail: str, node: Node, blocks: list[int]) -> Node:
        tail_id = next(self._new)
        if self.oracle.match(text) < len(text):
            self._record(text, [*blocks, tail_id])
        depth = len(blocks) * self.size
        return self.tree.insert(node, depth, self.letters(tail), [tail_id]).node

    def evict(self, times: int) -> None:
        for _ in range(times):
            victim = self.oracle.victim(self.held)
            if victim is not None:
                assert self.tree.evict() == victim
                del self.oracle.text[victim]

    def _record(self, text: str, blocks: list[int]) -> None:
        for number, block_id in enumerate(blocks):
            held = text[: (number + 1) * self.size]
            for other in self._superseded(held, number):
                del self.oracle.text[other]
            self.oracle.text[block_id] = held
            self.oracle.used.setdefault(block_id, 0)

    def _superseded(self, held: str, number: int) -> list[int]:
        """Partial blocks of that number whose tokens `held` has too, and more."""
        return [
            other
            for other, text in self.oracle.text.items()
            if len(text) % self.size and len(text) // self.size == number
            if len(text) < len(held) and held.startswith(text)
        ]
