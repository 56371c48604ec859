"""Who leaves, reads slowly and waits how long is drawn from the request's id alone."""

from __future__ import annotations

import pytest

from bench.load.habits import Habits, draw_habits
from bench.load.settings import LeaveSettings, LoadSettings, RetrySettings, SlowReaderSettings
from tests.bench.load.clients import request

COUNT = 2000
LOAD = LoadSettings(
    leave=LeaveSettings(share=0.3, after_s=[1.0, 2.0], after_tokens=[4, 8]),
    slow_readers=SlowReaderSettings(share=0.1),
    retries=RetrySettings(limit=3, backoff_s=0.5),
)


def habits(seed: int = 0, load: LoadSettings = LOAD, output_tokens: int = 100) -> list[Habits]:
    return [draw_habits(load, seed, request(number, output_tokens)) for number in range(COUNT)]


def test_the_same_request_has_the_same_habits() -> None:
    assert habits() == habits()
    assert habits() != habits(seed=1)


def test_shares_are_kept() -> None:
    """Within four standard deviations of a binomial draw."""
    found = habits()
    leaving = [h.leave for h in found if h.leave is not None]
    assert len(leaving) / COUNT == pytest.approx(0.3, abs=4 * (0.3 * 0.7 / COUNT) ** 0.5)
    slow = sum(h.tokens_per_s is not None for h in found)
    assert slow / COUNT == pytest.approx(0.1, abs=4 * (0.1 * 0.9 / COUNT) ** 0.5)
    kinds = [leave.kind for leave in leaving]
    for kind in LOAD.leave.kinds:
        assert kinds.count(kind) / len(kinds) == pytest.approx(1 / 3, abs=0.08)


def test_moments_are_in_their_ranges() -> None:
    leaving = [h.leave for h in habits() if h.leave is not None]
    tokens = {leave.after_tokens for leave in leaving if leave.kind == "after_tokens"}
    assert tokens == {4, 5, 6, 7, 8}
    after_s = [leave.after_s for leave in leaving if leave.kind == "after_s"]
    assert all(moment_s is not None and 1.0 <= moment_s < 2.0 for moment_s in after_s)


def test_nobody_leaves_an_answer_that_is_whole() -> None:
    leaving = [h.leave for h in habits(output_tokens=3) if h.leave is not None]
    assert {leave.after_tokens for leave in leaving if leave.kind == "after_tokens"} == {2}


def test_backoffs_double_and_are_half_to_whole() -> None:
    for found in habits():
        for attempt, backoff_s in enumerate(found.backoffs_s):
            assert 0.25 * 2**attempt <= backoff_s < 0.5 * 2**attempt


def test_one_share_leaves_the_other_draws_alone() -> None:
    alone = LoadSettings(slow_readers=LOAD.slow_readers, retries=LOAD.retries)
    pairs = zip(habits(), habits(load=alone), strict=True)
    assert all(a.tokens_per_s == b.tokens_per_s and a.backoffs_s == b.backoffs_s for a, b in pairs)
