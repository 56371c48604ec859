"""What a client does is its request's, on its own clock; when it tries again is drawn by its id."""

from __future__ import annotations

from bench.load.habits import Habits, habits
from bench.load.settings import LoadSettings, RetrySettings
from tests.bench.load.clients import request
from workloads.base import Client, Leave

COUNT = 500
LOAD = LoadSettings(retries=RetrySettings(limit=3, backoff_s=0.5))


def every(seed: int = 0) -> list[Habits]:
    return [habits(LOAD, seed, request(number), 1.0) for number in range(COUNT)]


def test_the_same_request_has_the_same_habits() -> None:
    assert every() == every()
    assert every() != every(seed=1)


def test_backoffs_double_and_are_half_to_whole() -> None:
    for found in every():
        assert len(found.backoffs_s) == 3
        for attempt, backoff_s in enumerate(found.backoffs_s):
            assert 0.25 * 2**attempt <= backoff_s < 0.5 * 2**attempt


def test_clients_of_a_faster_engine_are_faster() -> None:
    """Five of the engine's seconds pass in one of theirs; tokens stay tokens."""
    client = Client(Leave("after_s", after_s=2.0, after_tokens=7), tokens_per_s=4.0)
    scaled = habits(LoadSettings(), 0, request(client=client), 5.0)
    assert scaled == Habits(Leave("after_s", after_s=0.4, after_tokens=7), 20.0)
    assert habits(LoadSettings(), 0, request(client=client), 1.0) == Habits(*client)
    assert habits(LoadSettings(), 0, request(), 5.0) == Habits()
