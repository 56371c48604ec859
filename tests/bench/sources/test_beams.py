"""Beams beside what is served: forked and cut as the survivor process says."""

from __future__ import annotations

from tests.bench.sources.support import job, settings


def test_beams_hold_pages_and_copies_as_their_survivors_say() -> None:
    found = job("beams_by_hand")
    assert found["before"] == 0
    assert found["held"] == found["expected"]
    assert found["forks"] > 10
    assert found["counts"] == {"searches": 1, "forks": found["forks"], "given_up": 0}


def test_a_share_of_requests_searches() -> None:
    """The mean of 300 draws with probability 0.3 is 90, its standard deviation 7.9."""
    found = job("held_by_step", source=settings("beams", share=0.3), steps=2, sequences=300)
    assert 60 < found["counts"]["searches"] < 120
    assert found["left"][-1] == 0


def test_a_search_without_memory_goes_on_as_one_sequence() -> None:
    source = settings("beams", share=1, width=3)
    page = 16 * 4096
    found = job("held_by_step", source=source, steps=40, limit=2 * page)
    assert found["held"][1] == 2 * page  # two beams beside the backend's, a page each
    assert found["held"][-1] == 0
    assert (found["counts"]["given_up"], found["refused"]) == (1, 1)
