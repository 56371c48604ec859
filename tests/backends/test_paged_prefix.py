"""Prefix caching: what is found, in which order blocks are given out, and that hits are right."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.base import Demand, Hold, KvLayout, TokenIds
from backends.paged_prefix import PagedPrefix
from bench.token_source import token_source
from tests.backends.prefixes import ids, layout, traces
from workloads.base import Request
from workloads.trace import TraceWorkload

TOKEN_BYTES = 4096


def pool(blocks: int, block_size: int = 16) -> PagedPrefix:
    """A backend with a pool of exactly so many blocks, the null block among them."""
    backend = PagedPrefix(block_size=block_size)
    backend.start(layout(blocks, block_size))
    assert backend._pool.num_blocks == blocks
    return backend


def reserve(backend: PagedPrefix, sequence: int, tokens: int, token_ids: TokenIds) -> Hold | None:
    return backend.reserve(sequence, tokens, tokens, Demand(tokens, 1, token_ids))


def test_the_order_of_blocks_is_vllms() -> None:
    """A 55-token request takes blocks 1-4; one of 53 tokens that shares 48 of them hits 1-3 and
    takes 5; after both are freed the blocks without content are next in line, and what others may
    share is last, its end first."""
    backend = pool(11)
    assert reserve(backend, 0, 55, ids((7, 48))) == Hold(64)
    assert backend.block_table(0) == [1, 2, 3, 4]
    assert reserve(backend, 1, 53, ids((7, 48))) == Hold(64, cached_tokens=48)
    assert backend.block_table(1) == [1, 2, 3, 5]
    backend.free(0, 55)
    backend.free(1, 53)
    assert backend._pool.free_block_ids == [5, 4, 6, 7, 8, 9, 10, 3, 2, 1]


def test_the_last_token_is_never_a_hit() -> None:
    backend = pool(11)
    tokens = ids((7, 200))
    reserve(backend, 0, 48, tokens)
    backend.free(0, 48)
    for asked, found in ((48, 32), (49, 48), (16, 0), (17, 16), (1, 0)):
        assert backend.lookup(asked, Demand(asked, 1, tokens)) == found


def test_a_partial_block_is_not_found() -> None:
    backend = pool(11)
    reserve(backend, 0, 47, ids((7, 200)))
    backend.free(0, 47)
    assert backend.lookup(100, Demand(100, 1, ids((7, 200)))) == 32


def test_the_least_recently_freed_is_evicted_first_from_its_end() -> None:
    backend = pool(5)  # four usable
    old, new = ids((1, 32)), ids((2, 32))
    for sequence, tokens in ((0, old), (1, new)):
        reserve(backend, sequence, 32, tokens)
        backend.free(sequence, 32)
    assert backend.usage().free == 0, "all four blocks are kept for reuse"
    reserve(backend, 2, 16, ids((3, 16)))
    assert backend.lookup(100, Demand(100, 1, old)) == 16, "its second block went first"
    assert backend.lookup(100, Demand(100, 1, new)) == 32
    assert backend.evicted_blocks == 1


def test_a_hit_is_not_evicted_for_the_same_request() -> None:
    backend = pool(5)
    reserve(backend, 0, 64, ids((1, 64)))
    backend.free(0, 64)
    # Three blocks are found; the fourth is the only one that can be taken, for the last tokens.
    assert reserve(backend, 1, 64, ids((1, 48), (9, 16))) == Hold(64, cached_tokens=48)
    assert reserve(backend, 2, 16, ids((4, 16))) is None, "every block is held"
    backend.check_integrity()


def test_refused_admissions_change_nothing() -> None:
    backend = pool(5)
    reserve(backend, 0, 32, ids((1, 32)))
    backend.free(0, 32)
    before = backend._pool.free_block_ids
    assert reserve(backend, 1, 16 * 5, ids((1, 80))) is None
    assert backend._pool.free_block_ids == before


def test_blocks_that_were_not_written_after_all_are_not_found() -> None:
    """A sequence that asked for more and lost its memory before the step computed anything."""
    backend = pool(11)
    tokens = ids((7, 200))
    reserve(backend, 0, 20, tokens)  # two blocks, the second with 4 tokens to come
    backend.extend(0, 40)
    backend.free(0, 20)
    assert backend.lookup(100, Demand(100, 1, tokens)) == 16


def test_two_that_compute_the_same_keep_one() -> None:
    """The last token of a prompt is computed anew, and with block 1 of both the same block 2."""
    backend = pool(11)
    tokens = ids((7, 200))
    reserve(backend, 0, 32, tokens)
    assert reserve(backend, 1, 32, tokens) == Hold(32, cached_tokens=16)
    assert (backend.block_table(0), backend.block_table(1)) == ([1, 2], [1, 3])
    backend.free(0, 32)
    backend.free(1, 32)
    assert backend.usage().cached == 2 * (2 << 20)
    assert backend._pool.free_block_ids[0] == 3, "the copy is nobody's hit"


lives = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 40), st.integers(0, 4), st.booleans()), max_size=60
)


@pytest.mark.parametrize("block_size", [1, 4, 16])
@settings(max_examples=150, deadline=None)
@given(steps=lives)
def test_what_is_found_is_what_was_written(
    block_size: int, steps: list[tuple[int, int, int, bool]]
) -> None:
    """A shadow of every block's content: a hit's blocks hold exactly the prompt's own tokens."""
    backend = pool(9, block_size)
    written: dict[int, bytes] = {}  # block -> the whole prefix up to its end
    live: dict[int, tuple[int, TokenIds]] = {}
    for number, (family, tokens, other, frees) in enumerate(steps):
        if frees and live:
            sequence = sorted(live)[other % len(live)]
            backend.free(sequence, live.pop(sequence)[0])
        prompt = ids((family, tokens * (number % 2) + other), (5 + family % 2, tokens))
        hold = reserve(backend, number, tokens, prompt)
        if hold is not None:
            assert hold.cached_tokens < tokens
            table = backend.block_table(number)
            for index, block_id in enumerate(table):
                prefix = prompt(0, (index + 1) * block_size)
                if index * block_size < hold.cached_tokens:
                    assert written[block_id] == prefix
                written[block_id] = prefix
            live[number] = tokens, prompt
        backend.check_integrity()


@pytest.mark.parametrize(("name", "share"), [("conversation", 0.3819), ("synthetic", 0.6594)])
def test_an_unbounded_pool_finds_what_mooncakes_ids_share(name: str, share: float) -> None:
    """Full blocks of 512 tokens, found by the tokens that stand for the trace's ids, against a set
    of the ids themselves."""
    path = traces() / f"mooncake_{name}.jsonl"
    seen: set[int] = set()
    known = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        full = row["hash_ids"][: row["input_length"] // 512]
        known += sum(block in seen for block in full)
        seen.update(full)
    trace = TraceWorkload(path=str(path)).requests(seed=0)
    found, blocks = replay(trace, block_size=512, slots=200 << 20)
    assert found == known
    assert found / blocks == pytest.approx(share, abs=5e-5)


@pytest.mark.parametrize(
    ("name", "share"),
    [pytest.param("conversation", 0.366, marks=pytest.mark.long), ("synthetic", 0.640)],
)
def test_counted_as_the_trace_counts_partial_last_blocks_are_hits_too(
    name: str, share: float
) -> None:
    """Every id stands for a block: prompts are filled up to the end of their last one (and one
    token more, which is never found)."""
    trace = TraceWorkload(path=str(traces() / f"mooncake_{name}.jsonl"))
    filled = (_filled_up(request) for request in trace.requests(seed=0))
    found, blocks = replay(filled, block_size=512, slots=200 << 20)
    assert found / blocks == pytest.approx(share, abs=5e-4)


def _filled_up(request: Request) -> Request:
    return replace(request, prompt_tokens=512 * len(request.prefix) + 1)


@pytest.mark.parametrize("name", ["conv", "code"])
def test_prompts_of_their_own_never_hit(name: str) -> None:
    trace = TraceWorkload(path=str(traces() / f"azure_llm_2023_{name}.csv"))
    found, blocks = replay(trace.requests(seed=0), 128, slots=32 << 20)
    assert (found, blocks > 0) == (0, True)


def replay(requests: Iterable[Request], block_size: int, slots: int) -> tuple[int, int]:
    """Hits and full blocks of prompts that come one after the other to a pool for all of them."""
    backend = PagedPrefix(block_size=block_size)
    backend.start(KvLayout(1, 2, max_model_len=1 << 17, budget_bytes=2 * slots, device="cpu"))
    found = blocks = 0
    for request in requests:
        tokens = request.prompt_tokens
        hold = reserve(backend, request.request_id, tokens, token_source(request, 128_256))
        assert hold is not None
        backend.free(request.request_id, tokens)
        found += hold.cached_tokens // block_size
        blocks += tokens // block_size
    assert backend.evicted_blocks == 0
    return found, blocks


def test_what_branches_write_is_nobodys_prefix() -> None:
    """Not even where one branch alone is left, nor when a sequence of branches is computed again:
    after the prompt, its tokens have no ids."""
    backend = pool(11)
    tokens = ids((7, 200))
    demand = Demand(40, 60, tokens, branches=2)
    backend.reserve(0, 40, 40, demand)
    backend.extend(0, 41, (0, 0))
    backend.extend(0, 42, (1,))
    backend.extend(0, 70)
    backend.free(0, 70)
    assert backend.lookup(100, Demand(100, 1, tokens)) == 32
    reserve(backend, 1, 100, tokens)
    assert backend.lookup(90, demand) == 32, "the other's blocks hold other tokens"
