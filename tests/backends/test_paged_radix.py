"""Prefix caching to the token: what is found and copied, whose blocks stay, and which go first."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.base import BackendError, Demand, Hold, KvLayout, TokenIds
from backends.paged_prefix import PagedPrefix
from backends.paged_radix import PagedRadix
from bench.token_source import token_source
from tests.backends.prefixes import BLOCK_BYTES, ids, layout, source, traces
from workloads.trace import TraceWorkload


def pool(blocks: int, block_size: int = 16, partial_blocks: bool = True) -> PagedRadix:
    """A backend with a pool of exactly so many blocks, the null block among them."""
    backend = PagedRadix(block_size=block_size, partial_blocks=partial_blocks)
    backend.start(layout(blocks, block_size))
    assert backend._pool.num_blocks == blocks
    return backend


def reserve(
    backend: PagedRadix | PagedPrefix, sequence: int, tokens: int, token_ids: TokenIds
) -> Hold | None:
    hold = backend.reserve(sequence, tokens, tokens, Demand(tokens, 1, token_ids))
    backend.computed()
    return hold


def run(backend: PagedRadix | PagedPrefix, sequence: int, tokens: int, token_ids: TokenIds) -> int:
    """A sequence that comes, is computed and goes; the tokens that it found."""
    hold = reserve(backend, sequence, tokens, token_ids)
    assert hold is not None
    backend.free(sequence, tokens)
    backend.check_integrity()
    return hold.cached_tokens


@pytest.mark.parametrize(
    ("block_size", "partial_blocks", "cached", "copied"),
    [
        (1, True, 40, 0),
        (16, True, 40, 8),  # two whole blocks and 8 tokens of the third
        (256, True, 40, 40),
        (1, False, 40, 0),
        (16, False, 32, 0),
        (256, False, 0, 0),
    ],
)
def test_a_hit_is_as_long_as_the_common_prefix(
    block_size: int, partial_blocks: bool, cached: int, copied: int
) -> None:
    backend = pool(120, block_size, partial_blocks)
    run(backend, 0, 55, ids((7, 40)))
    hold = reserve(backend, 1, 53, ids((7, 40)))
    slots = -(-53 // block_size) * block_size
    copied_bytes = copied * BLOCK_BYTES // block_size
    assert hold == Hold(slots, copied_bytes, copies=min(copied, 1), cached_tokens=cached)


def test_whole_blocks_are_shared_and_the_rest_is_the_sequences_own() -> None:
    backend = pool(11)
    reserve(backend, 0, 55, ids((7, 48)))
    reserve(backend, 1, 55, ids((7, 40)))
    assert (backend.block_table(0), backend.block_table(1)) == ([1, 2, 3, 4], [1, 2, 5, 6])
    usage = backend.usage()
    assert (usage.held, usage.shared) == (6 * BLOCK_BYTES, 2 * BLOCK_BYTES)


def test_the_last_token_is_never_a_hit() -> None:
    backend = pool(11)
    tokens = ids((7, 200))
    run(backend, 0, 48, tokens)
    for asked, found in ((48, 47), (49, 48), (16, 15), (17, 16), (1, 0), (200, 48)):
        assert backend.lookup(asked, Demand(asked, 1, tokens)) == found


def test_a_block_that_is_all_there_is_not_copied_for_its_last_token() -> None:
    """The last token of 32 is computed again for its logits; its K and V are there."""
    backend = pool(11)
    tokens = ids((7, 200))
    reserve(backend, 0, 32, tokens)
    assert reserve(backend, 1, 32, tokens) == Hold(32, cached_tokens=31)
    assert backend.block_table(1) == [1, 2]


def test_a_partial_last_block_is_found_when_its_sequence_is_done() -> None:
    backend = pool(11)
    tokens = ids((7, 200))
    reserve(backend, 0, 47, tokens)
    assert backend.lookup(100, Demand(100, 1, tokens)) == 32
    backend.free(0, 47)
    assert backend.lookup(100, Demand(100, 1, tokens)) == 47
    assert backend.usage().cached == 3 * BLOCK_BYTES


@pytest.mark.parametrize(("partial_blocks", "found"), [(True, 20), (False, 16)])
def test_tokens_that_were_not_written_after_all_are_not_found(
    partial_blocks: bool, found: int
) -> None:
    """A sequence that asked for more and lost its memory before the step computed anything."""
    backend = pool(11, partial_blocks=partial_blocks)
    tokens = ids((7, 200))
    reserve(backend, 0, 20, tokens)
    backend.extend(0, 70)
    assert backend.lookup(100, Demand(100, 1, tokens)) == 64
    backend.free(0, 20)
    backend.check_integrity()
    assert backend.lookup(100, Demand(100, 1, tokens)) == found


def test_what_others_use_too_stays_found() -> None:
    backend = pool(11)
    tokens = ids((7, 200))
    reserve(backend, 0, 32, tokens)
    reserve(backend, 1, 40, tokens)
    backend.free(1, 16)
    backend.check_integrity()
    assert backend.lookup(100, Demand(100, 1, tokens)) == 32


def test_what_was_there_before_stays_found() -> None:
    """A sequence that was to write what is written already, and did not come to it."""
    backend = pool(11)
    tokens = ids((7, 200))
    reserve(backend, 0, 20, tokens)
    run(backend, 1, 48, tokens)
    backend.extend(0, 48)
    assert backend.block_table(0) == [1, 3, 4]
    backend.free(0, 20)
    backend.check_integrity()
    assert backend.lookup(100, Demand(100, 1, tokens)) == 48


def test_a_block_that_was_found_whole_stays_so() -> None:
    """The sequence had its last token to compute, and did not come to it."""
    backend = pool(11)
    tokens = ids((7, 200))
    run(backend, 0, 32, tokens)
    hold = reserve(backend, 1, 32, tokens)
    assert hold == Hold(32, cached_tokens=31)
    backend.free(1, 31)
    assert backend.lookup(100, Demand(100, 1, tokens)) == 32


def test_two_that_compute_the_same_keep_one() -> None:
    backend = pool(11)
    tokens = ids((7, 200))
    reserve(backend, 0, 20, tokens)
    assert reserve(backend, 1, 20, tokens) == Hold(32, cached_tokens=16)
    assert (backend.block_table(0), backend.block_table(1)) == ([1, 2], [1, 3])
    backend.extend(0, 33)
    assert backend.extend(1, 33) == Hold(48)
    assert (backend.block_table(0), backend.block_table(1)) == ([1, 2, 4], [1, 2, 5])
    assert backend._pool.free_block_ids[0] == 3, "the copy is nobody's hit"
    backend.check_integrity()


def test_the_least_recently_used_leaf_goes_first_from_its_end() -> None:
    backend = pool(5)  # four usable
    old, new = ids((1, 32)), ids((2, 32))
    run(backend, 0, 32, old)
    run(backend, 1, 32, new)
    assert backend.usage().free == 0, "all four blocks are kept for reuse"
    reserve(backend, 2, 16, ids((3, 16)))
    assert backend.lookup(100, Demand(100, 1, old)) == 16, "its second block went first"
    assert backend.lookup(100, Demand(100, 1, new)) == 32
    assert backend.evicted_blocks == 1


def test_a_hit_makes_what_it_found_recent_and_not_what_follows() -> None:
    backend = pool(6)  # five usable
    one, two = ids((1, 16), (2, 16)), ids((5, 16), (6, 16))
    run(backend, 0, 32, one)  # blocks 1 2
    run(backend, 1, 32, two)  # blocks 3 4
    run(backend, 2, 17, ids((1, 17)))  # finds 1, and has 5 for the rest
    reserve(backend, 3, 48, ids((8, 48)))
    assert backend.lookup(100, Demand(100, 1, one)) == 16, "2 went first"
    assert backend.lookup(100, Demand(100, 1, two)) == 0, "then 4, then 3"
    assert backend.lookup(100, Demand(100, 1, ids((1, 17)))) == 17


def test_what_is_found_is_not_evicted_for_the_same_request() -> None:
    backend = pool(5)
    run(backend, 0, 64, ids((1, 64)))
    # Three blocks are found; the fourth is the only one that can be taken, for the last tokens.
    assert reserve(backend, 1, 64, ids((1, 48), (9, 16))) == Hold(64, cached_tokens=48)
    assert reserve(backend, 2, 16, ids((4, 16))) is None, "every block is held"
    backend.check_integrity()


def test_a_block_may_go_for_the_copy_of_its_own_tokens() -> None:
    """Of two blocks one is shared, and the other is copied and given up in one go."""
    backend = pool(3)
    run(backend, 0, 24, ids((1, 20)))
    token_bytes = BLOCK_BYTES // 16
    hold = reserve(backend, 1, 24, ids((1, 20)))
    assert hold == Hold(32, copied_bytes=4 * token_bytes, copies=1, cached_tokens=20)
    assert backend.block_table(1) == [1, 2]
    backend.check_integrity()


def test_refused_admissions_change_nothing() -> None:
    backend = pool(5)
    run(backend, 0, 32, ids((1, 32)))
    before = backend._pool.free_block_ids
    assert reserve(backend, 1, 16 * 5, ids((1, 80))) is None
    assert backend._pool.free_block_ids == before
    assert backend.lookup(100, Demand(100, 1, ids((1, 32)))) == 32


def test_branches_share_a_block_that_was_found_whole() -> None:
    """One that asks for less than it finds has no partial block that a fork must copy."""
    backend = pool(11)
    tokens = ids((7, 200))
    run(backend, 0, 32, tokens)
    hold = backend.reserve(1, 16, 32, Demand(32, 10, tokens, branches=2))
    assert hold == Hold(32, cached_tokens=31)
    assert backend.extend(1, 33, (0, 0)) == Hold(2 * 48)
    assert [backend.block_table(1, branch)[:2] for branch in (0, 1)] == [[1, 2], [1, 2]]
    backend.check_integrity()


@pytest.mark.parametrize("survivors", [(0, 1), (1,)])
def test_what_is_written_after_a_fork_is_nobodys_prefix(survivors: tuple[int, ...]) -> None:
    """Not even where one branch alone is left."""
    backend = pool(11)
    tokens = ids((7, 200))
    backend.reserve(0, 20, 20, Demand(20, 60, tokens, branches=2))
    backend.extend(0, 21, (0, 0))
    backend.check_integrity()
    backend.extend(0, 50, survivors)
    assert backend.lookup(100, Demand(100, 1, tokens)) == 16
    backend.free(0, 50)
    backend.check_integrity()
    assert backend.lookup(100, Demand(100, 1, tokens)) == 16
    assert backend.usage().cached == BLOCK_BYTES


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_a_setting_that_is_no_truth_value_is_refused(value: object) -> None:
    with pytest.raises(BackendError, match=r"backend\.partial_blocks=.* give true .* or false"):
        PagedRadix(partial_blocks=value)  # type: ignore[arg-type]


texts = st.lists(st.integers(0, 1), min_size=1, max_size=30)
lives = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), texts, st.integers(1, 30)),
        st.tuples(st.just("extend"), st.integers(0, 9), st.integers(1, 12)),
        st.tuples(st.just("free"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("preempt"), st.just(-1), st.integers(1, 12)),
    ),
    max_size=40,
)


@pytest.mark.parametrize("block_size", [1, 4, 16])
@settings(max_examples=150, deadline=None)
@given(steps=lives, probe=texts)
def test_what_is_found_is_what_was_written(
    block_size: int, steps: list[tuple[str, Any, int]], probe: list[int]
) -> None:
    """A shadow of every block's content, in a pool that evicts all the time."""
    life = Life(pool(9, block_size), block_size)
    for number, (action, what, more) in enumerate(steps):
        getattr(life, action)(number, what, more)
        life.backend.check_integrity()
        demand = Demand(len(probe), 1, source(probe))
        assert life.backend.lookup(len(probe), demand) == life.findable(probe)


class Life:
    """Sequences in a small pool, and the tokens up to each block's end as they were written."""

    def __init__(self, backend: PagedRadix, block_size: int) -> None:
        self.backend = backend
        self._size = block_size
        self._written: dict[int, list[int]] = {}
        self._live: dict[int, tuple[list[int], int]] = {}

    def findable(self, tokens: list[int]) -> int:
        """By brute force over the blocks that the tree has."""
        kept = (self._written[block_id] for block_id in self.backend._radix.tree.block_ids)
        return min(max((_common(tokens, text) for text in kept), default=0), len(tokens) - 1)

    def reserve(self, number: int, text: list[int], more: int) -> None:
        known = text + text[::-1] + [number] * 100
        found = self.findable(text)
        hold = reserve(self.backend, number, len(text), source(known))
        if hold is not None:
            assert hold.cached_tokens == found
            self._wrote(number, known, len(text))

    def extend(self, number: int, which: int, more: int) -> None:
        if self._live:
            sequence = list(self._live)[which % len(self._live)]
            known, tokens = self._live[sequence]
            if self.backend.extend(sequence, tokens + more) is not None:
                self._wrote(sequence, known, tokens + more)
                self.backend.computed()

    def free(self, number: int, which: int, more: int) -> None:
        if self._live:
            sequence = list(self._live)[which % len(self._live)]
            self._end(sequence, self._live[sequence][1])

    def preempt(self, number: int, which: int, more: int) -> None:
        """The youngest asks for more and is preempted in the same step."""
        if self._live:
            sequence = list(self._live)[which]
            known, tokens = self._live[sequence]
            before = set(self.backend._radix.tree.block_ids)
            if self.backend.extend(sequence, tokens + more) is not None:
                self._wrote(sequence, known, tokens + more)
            table = self.backend.block_table(sequence)
            self._end(sequence, tokens)
            for block_id in {*table} - before:
                self._written[block_id] = self._written[block_id][:tokens]

    def _wrote(self, sequence: int, known: list[int], tokens: int) -> None:
        self._live[sequence] = known, tokens
        for index, block_id in enumerate(self.backend.block_table(sequence)):
            self._written[block_id] = known[: min((index + 1) * self._size, tokens)]

    def _end(self, sequence: int, computed: int) -> None:
        self.backend.free(sequence, computed)
        del self._live[sequence]


def _common(a: list[int], b: list[int]) -> int:
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))
    return len(list(same))


@pytest.mark.parametrize("block_size", [1, 16, 256])
@settings(max_examples=50, deadline=None)
@given(prompts=st.lists(texts, min_size=1, max_size=12), repeat=st.integers(1, 20))
def test_an_unbounded_pool_finds_the_longest_prefix_at_any_block_size(
    block_size: int, prompts: list[list[int]], repeat: int
) -> None:
    backend = pool(8000, block_size)
    seen: list[list[int]] = []
    for number, prompt in enumerate(prompts):
        tokens = [token for token in prompt for _ in range(repeat)]
        longest = max((_common(tokens, earlier) for earlier in seen), default=0)
        assert run(backend, number, len(tokens), source(tokens)) == min(longest, len(tokens) - 1)
        seen.append(tokens)


@pytest.mark.parametrize("block_size", [1, 4, 16])
@settings(max_examples=100, deadline=None)
@given(steps=lives)
def test_whole_blocks_are_found_as_by_a_hash_chain(
    block_size: int, steps: list[tuple[str, Any, int]]
) -> None:
    """With nothing evicted the two differ in nothing but the partial blocks."""
    chain, radix = PagedPrefix(block_size=block_size), pool(2000, block_size, partial_blocks=False)
    chain.start(layout(2000, block_size))
    live: dict[int, int] = {}
    for number, (action, what, more) in enumerate(steps):
        if action == "reserve":
            known = source(what + what[::-1] + [number] * 1000)
            live[number] = len(what)
            holds = [reserve(backend, number, len(what), known) for backend in (chain, radix)]
            assert holds[0] == holds[1]
        elif live:
            sequence = list(live)[what % len(live)]
            live[sequence] += more
            assert chain.extend(sequence, live[sequence]) == radix.extend(sequence, live[sequence])
            if action != "extend":
                tokens = live.pop(sequence)
                chain.free(sequence, tokens)
                radix.free(sequence, tokens)


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        ("conversation", 1500),
        ("synthetic", 1500),
        pytest.param("conversation", None, marks=pytest.mark.long),
        pytest.param("synthetic", None, marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("block_size", [16, 256])
def test_mooncakes_prompts_find_all_that_their_ids_share(
    name: str, requests: int | None, block_size: int
) -> None:
    path = traces() / f"mooncake_{name}.jsonl"
    backend = PagedRadix(block_size=block_size)
    slots = (32 if requests else 160) << 20
    backend.start(KvLayout(1, 2, max_model_len=1 << 17, budget_bytes=2 * slots, device="cpu"))
    lines = path.read_text(encoding="utf-8").splitlines()
    workload = TraceWorkload(path=str(path)).requests(seed=0)
    seen: dict[int, int] = {}
    for line, request in itertools.islice(zip(lines, workload, strict=True), requests):
        # So many words that two streams do not start with the same one by chance.
        hold = reserve(
            backend, request.request_id, request.prompt_tokens, token_source(request, 2**31 - 1)
        )
        assert hold is not None
        backend.free(request.request_id, request.prompt_tokens)
        assert hold.cached_tokens == shared_tokens(json.loads(line), seen)
    assert backend.evicted_blocks == 0


def shared_tokens(row: dict[str, Any], seen: dict[int, int]) -> int:
    """How much of a prompt was in an earlier one, by its ids of 512 tokens each: `seen` is how many
    of an id's tokens prompts had so far (the last id of a prompt may stand for fewer)."""
    tokens = row["input_length"]
    found, known = 0, True
    for index, block in enumerate(row["hash_ids"]):
        own = min(512, tokens - 512 * index)
        found += min(own, seen.get(block, 0)) * known
        known = known and seen.get(block, 0) == 512
        seen[block] = max(own, seen.get(block, 0))
    return min(found, tokens - 1)


def test_what_the_step_to_come_writes_is_shared_but_not_copied() -> None:
    """A whole block will be there in time, layer by layer; a part of it cannot be copied yet."""
    backend = pool(11)
    first, second = ids((7, 48)), ids((7, 40))
    assert backend.reserve(0, 48, 48, Demand(48, 1, first)) is not None
    assert backend.lookup(60, Demand(60, 1, second)) == 32
    backend.computed()
    assert backend.lookup(60, Demand(60, 1, second)) == 40
