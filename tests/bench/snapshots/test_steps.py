"""Of what an allocator did, what its program asked for."""

from __future__ import annotations

from typing import Any

from bench.snapshots.before import read_history
from bench.snapshots.steps import Op, read_steps
from tests.bench.snapshots.support import block, event, freed, segment

ALLOCATION = [{"filename": "a.py", "line": 1, "name": "allocate"}]
EMPTYING = [{"filename": "a.py", "line": 2, "name": "empty"}]


def steps(trace: list[dict[str, Any]], *segments: dict[str, Any]) -> list[tuple[Op, int]]:
    history = read_history({"device_traces": [trace], "segments": list(segments)})
    return [(Op(int(op)), int(number)) for op, number, *_ in read_steps(history).table.tolist()]


def test_allocations_are_numbered_after_what_was_there_before() -> None:
    trace = [event("alloc", 5, 5), *freed(0, 5), *freed(5, 5)]
    assert steps(trace, segment(0, 20)) == [
        (Op.ALLOC, 1),
        (Op.REQUEST_FREE, 0),
        (Op.COMPLETE_FREE, 0),
        (Op.REQUEST_FREE, 1),
        (Op.COMPLETE_FREE, 1),
    ]


def test_a_history_of_one_kind_of_frees_frees_at_once() -> None:
    for kind in ("free_requested", "free_completed"):
        trace = [event("alloc", 0, 5), event(kind, 0, 5)]
        assert steps(trace, segment(0, 20)) == [(Op.ALLOC, 0), (Op.FREE, 0)]


def test_segments_that_made_room_for_an_allocation_are_no_wish_of_the_program() -> None:
    freed_for_it = event("segment_free", 0, 20, frames=ALLOCATION)
    new = event("segment_alloc", 100, 30, frames=ALLOCATION)
    assert steps(
        [freed_for_it, new, event("alloc", 100, 30)], segment(100, 30, block(100, 30))
    ) == [(Op.ALLOC, 0)]
    refused = event("oom", 0, 90, frames=ALLOCATION)
    assert steps([freed_for_it, refused]) == [(Op.REFUSED, -1)]


def test_another_call_stack_emptied_the_cache() -> None:
    emptied = event("segment_free", 0, 20, frames=EMPTYING)
    new = event("segment_alloc", 100, 30, frames=ALLOCATION)
    assert steps([emptied, new, event("alloc", 100, 30)], segment(100, 30, block(100, 30))) == [
        (Op.EMPTY_CACHE, -1),
        (Op.ALLOC, 0),
    ]


def test_without_call_stacks_a_release_had_to_be_where_more_than_ever_was_wanted() -> None:
    # Never are more than 40 MiB reserved: before 20 are given back, 60 may not have been there.
    grown = [event("segment_free", 0, 20), event("segment_alloc", 100, 20), event("alloc", 100, 20)]
    end = (segment(50, 20), segment(100, 20, block(100, 20)))
    assert steps(grown, *end) == [(Op.ALLOC, 0)]
    # The card is known to have had 90 MiB: the program emptied its cache.
    oom = event("oom", 0, 95, device_free=50 << 20)
    assert steps([*grown, oom], *end) == [(Op.EMPTY_CACHE, -1), (Op.ALLOC, 0), (Op.REFUSED, -1)]


def test_without_call_stacks_a_program_that_once_emptied_its_cache_does_it_again() -> None:
    emptied = [event("segment_free", 0, 20), *freed(50, 1)]
    grown = [
        event("segment_free", 20, 20),
        event("segment_alloc", 100, 20),
        event("alloc", 100, 20),
    ]
    found = steps([*emptied, *grown], segment(50, 20), segment(100, 20, block(100, 20)))
    assert [op for op, _ in found].count(Op.EMPTY_CACHE) == 2


def test_private_pools_are_dropped() -> None:
    trace = [event("alloc", 0, 5, pool_id=(0, 1)), *freed(0, 5),
             event("segment_free", 0, 20, pool_id=(0, 1))]  # fmt: skip
    assert [op for op, _ in steps(trace)][-1] == Op.DROP_POOL
