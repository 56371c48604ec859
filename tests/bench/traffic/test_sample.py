"""Turns as they are drawn, and when they are sent."""

from __future__ import annotations

import numpy as np
import pytest

from bench.traffic.sample import draw
from workloads.base import Request


def session(first_id: int, start_s: float, *thinks_s: float) -> Request:
    """A session of one turn more than think times, each of 10 tokens and an answer of 2."""
    next_turn = None
    for place, think_s in reversed(list(enumerate(thinks_s, 1))):
        next_turn = Request(first_id + place, think_s, 10, 2, next_turn=next_turn)
    return Request(first_id, start_s, 10, 2, next_turn=next_turn)


TWO = [session(0, 0.0, 5.0, 1.0), session(3, 4.0)]


def test_turns_follow_their_session() -> None:
    sample = draw(TWO)
    assert [turn.request_id for turn in sample.turns] == [0, 1, 2, 3]
    assert sample.first.tolist() == [True, False, False, True]
    assert (sample.sessions, sample.turns_per_session, sample.whole) == (2, 2.0, True)


def test_a_later_turn_is_sent_its_think_time_after_the_answer_before_it() -> None:
    # 0; answered at 3, 5 more: 8; answered at 10, 1 more: 11. The other session is on its own.
    answered_in_s = np.array([3.0, 2.0, 9.0, 9.0])
    assert draw(TWO).sent_s(answered_in_s).tolist() == [0.0, 8.0, 11.0, 4.0]


def test_a_sample_says_whether_it_is_all() -> None:
    sample = draw(TWO, most=3)
    assert [turn.request_id for turn in sample.turns] == [0, 1, 2]
    assert not sample.whole
    assert draw(TWO, most=4).whole


@pytest.mark.parametrize(("starts_s", "rate"), [([0.0, 1.0, 4.0], 0.5), ([2.0], None)])
def test_the_rate_is_that_of_the_gaps(starts_s: list[float], rate: float | None) -> None:
    firsts = [session(number, start_s) for number, start_s in enumerate(starts_s)]
    assert draw(firsts).sessions_per_s == rate
