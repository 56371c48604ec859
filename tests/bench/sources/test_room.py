"""A source's memory: its plan, the headroom that all share, and what is refused."""

from __future__ import annotations

from bench.sources.room import Headroom, Room
from tests.bench.sources.support import job

MIB = 1 << 20


def test_what_was_planned_for_one_is_not_anothers() -> None:
    headroom = Headroom(100)
    planner, other = Room(headroom, planned_bytes=50), Room(headroom)
    other.count(100)
    assert not other.allows(1)
    assert planner.allows(50)
    assert not planner.allows(51)
    other.count(-30)
    planner.count(70)  # 20 of them from the headroom
    assert (planner.allows(10), planner.allows(11)) == (True, False)
    assert other.allows(10)
    planner.count(-20)
    assert (other.allows(30), other.allows(31)) == (True, False)
    assert (planner.peak_bytes, planner.held_bytes) == (70, 50)


def test_blocks_come_all_or_none_and_a_refusal_is_asked_again_after_a_free() -> None:
    found = job("rooms_that_are_short")
    assert found["got"] == [False, False, False, True, False]
    assert found["ooms"] == [1, 1, 1, 1, 2]
    assert found["allocated"] == 10 * MIB
    assert found["refused"] == 4
    assert found["held"] == 20 * MIB
