"""Static batches by hand: buffers of 40 slots in host memory, three of which fit."""

from __future__ import annotations

import pytest

from backends.base import KvLayout
from backends.contiguous import Contiguous
from bench.metrics.status import Status
from tests.bench.engine.lab import Lab, limits

TOKEN_BYTES = 4096
BUDGET = 3 * 40 * TOKEN_BYTES


def static_lab(token_budget: int = 40) -> Lab:
    backend = Contiguous(layout="sequence")
    backend.start(KvLayout(1, TOKEN_BYTES, 40, BUDGET, "cpu"))
    chosen = limits(prefill="whole", token_budget=token_budget, batching="static")
    return Lab(backend, BUDGET, TOKEN_BYTES, chosen, max_model_len=40)


def test_a_batch_is_as_many_as_memory_holds_and_ends_with_its_last() -> None:
    lab = static_lab()
    lab.send((10, 2), (10, 5), (10, 3), (10, 2))
    lab.run()
    # One step of prompts, four more until the longest answer; then the fourth by itself.
    assert [step.tokens for step in lab.steps] == [30, 3, 3, 3, 3, 10, 1]
    ends = {end.sequence.id: end.end_s for end in lab.ends}
    assert ends[0] == ends[1] == ends[2] == lab.steps[4].end_s
    assert ends[3] == lab.steps[6].end_s


def test_an_answer_comes_all_at_once() -> None:
    lab = static_lab()
    short, long = lab.send((10, 2), (10, 5))
    lab.run()
    for sequence in (short, long):
        assert sequence.first_token_s == sequence.last_token_s == lab.steps[-1].end_s
    assert lab.engine.gaps.weighted()[0].size == 0


def test_memory_is_held_until_the_batch_ends() -> None:
    lab = static_lab()
    lab.send((10, 2), (10, 5))
    free = []
    lab.engine.on_step = lambda step: free.append(lab.backend.usage().free)
    lab.run()
    assert free == [40 * TOKEN_BYTES] * 5
    assert lab.backend.usage().free == BUDGET


def test_prompts_beyond_the_token_budget_come_in_the_next_step_of_the_same_batch() -> None:
    lab = static_lab(token_budget=40)
    lab.send((25, 3), (25, 3))
    lab.run()
    assert [step.tokens for step in lab.steps] == [25, 25, 2, 2]


def test_whoever_arrives_later_waits_for_the_whole_batch() -> None:
    lab = static_lab()
    lab.send((10, 5))
    lab.step()
    lab.send((10, 2))
    lab.step()
    assert (lab.running, lab.waiting) == ([0], [1])
    assert not lab.steps[-1].memory_bound, "it waits for its turn, not for memory"
    lab.run()
    assert lab.ended(Status.COMPLETED) == [0, 1]


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_batch_ends_when_the_one_it_waited_for_leaves(steps: int) -> None:
    lab = static_lab()
    _, long = lab.send((10, 2), (10, 20))
    for _ in range(steps):
        lab.step()
    lab.engine.cancel(long, lab.now)
    lab.run()
    assert lab.ended(Status.CANCELLED) == [1]
    assert lab.ended(Status.COMPLETED) == [0]
    assert lab.backend.usage().free == BUDGET


def test_a_batch_that_memory_cut_short_is_memory_bound_while_others_wait() -> None:
    lab = static_lab()
    lab.send((10, 2), (10, 5), (10, 3), (10, 2))
    lab.run()
    assert [step.memory_bound for step in lab.steps] == [True] * 5 + [False] * 2


def test_one_that_has_said_enough_holds_its_memory_until_the_batch_ends() -> None:
    lab = static_lab()
    early, long = lab.send((10, 20), (10, 5))
    lab.step()
    lab.step()
    lab.engine.complete(early, lab.now)
    lab.engine.complete(early, lab.now)  # once more is nothing
    assert lab.ended(Status.COMPLETED) == []
    assert lab.backend.usage().free == 40 * TOKEN_BYTES
    lab.run()
    assert [step.tokens for step in lab.steps] == [20, 2, 2, 2, 2], "it is padding"
    assert sorted(lab.ended(Status.COMPLETED)) == [0, 1]
    assert {end.end_s for end in lab.ends} == {lab.steps[-1].end_s}
    assert (early.generated, long.generated) == (2, 5)
    assert lab.backend.usage().free == BUDGET


def test_a_batch_ends_when_all_have_said_enough() -> None:
    lab = static_lab()
    for sequence in lab.send((10, 20), (10, 20)):
        lab.step()
        lab.engine.complete(sequence, lab.now)
    assert lab.ended(Status.COMPLETED) == [0, 1]
    assert lab.engine.idle
    assert lab.backend.usage().free == BUDGET
