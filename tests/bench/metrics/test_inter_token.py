"""Gaps between tokens, kept by step: the same as from a list of every token's time."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.engine.sequence import Sequence
from bench.metrics.inter_token import InterTokenGaps
from workloads.base import Request


class Tokens:
    """Feeds the gaps as the engine does: which sequences give a token in each step."""

    def __init__(self) -> None:
        self.gaps = InterTokenGaps()
        self.sequences: dict[int, Sequence] = {}
        self.times: dict[int, list[float]] = {}
        self._step = 0

    def step(self, end_s: float, *giving: int) -> None:
        self.gaps.step_ended(end_s)
        for number in giving:
            sequence = self.sequences.setdefault(number, Sequence(Request(number, 0.0, 1, 1), 0.0))
            if sequence.last_step != self._step - 1:
                self.gaps.run_broken(sequence, self._step, end_s)
            sequence.give_token(self._step, end_s)
            self.times.setdefault(number, []).append(end_s)
        self._step += 1

    def measured(self) -> Counter[float]:
        lengths, weights = self.gaps.weighted()
        counted: Counter[float] = Counter()
        for length, weight in zip(lengths, weights, strict=True):
            counted[round(float(length), 6)] += int(weight)
        return counted


def test_an_unbroken_run_waits_each_step_once() -> None:
    tokens = Tokens()
    for end_s, giving in [(1.0, (0,)), (3.0, (0, 1)), (6.0, (0, 1)), (10.0, (1,))]:
        tokens.step(end_s, *giving)
    tokens.gaps.completed(tokens.sequences[0])
    tokens.gaps.completed(tokens.sequences[1])
    # 0 has tokens at 1, 3, 6 and 1 at 3, 6, 10: gaps 2, 3 and 3, 4.
    assert tokens.measured() == {2.0: 1, 3.0: 2, 4.0: 1}
    assert tokens.sequences[0].first_token_s == 1.0
    assert tokens.sequences[1].first_token_s == 3.0


def test_a_preemption_is_one_long_gap() -> None:
    tokens = Tokens()
    for end_s, giving in [(1.0, (0,)), (2.0, (0,)), (5.0, ()), (9.0, ()), (11.0, (0,))]:
        tokens.step(end_s, *giving)
    tokens.gaps.completed(tokens.sequences[0])
    assert tokens.measured() == {1.0: 1, 9.0: 1}
    assert tokens.sequences[0].first_token_s == 1.0, "that of the time before"


def test_requests_that_did_not_complete_are_left_out() -> None:
    tokens = Tokens()
    for end_s in (1.0, 2.0, 4.0):
        tokens.step(end_s, 0, 1)
    tokens.gaps.completed(tokens.sequences[1])
    assert tokens.measured() == {1.0: 1, 2.0: 1}


def test_no_steps_and_single_tokens_give_no_gaps() -> None:
    assert [len(part) for part in InterTokenGaps().weighted()] == [0, 0]
    tokens = Tokens()
    tokens.step(1.0, 0)
    tokens.gaps.completed(tokens.sequences[0])
    assert tokens.measured() == {}


def test_gaps_can_be_read_while_tokens_go_on() -> None:
    tokens = Tokens()
    tokens.step(1.0, 0)
    tokens.step(2.0, 0)
    tokens.gaps.weighted()
    tokens.step(4.0, 0)
    tokens.gaps.completed(tokens.sequences[0])
    assert tokens.measured() == {1.0: 1, 2.0: 1}


@given(
    steps=st.lists(st.tuples(st.integers(1, 5), st.sets(st.integers(0, 3))), max_size=40),
    completed=st.sets(st.integers(0, 3)),
)
def test_equal_to_every_token_written_down(
    steps: list[tuple[int, set[int]]], completed: set[int]
) -> None:
    tokens = Tokens()
    ends = np.cumsum([length for length, _ in steps]).astype(float)
    for end_s, (_, giving) in zip(ends, steps, strict=True):
        tokens.step(float(end_s), *giving)
    expected: Counter[float] = Counter()
    for number in completed & tokens.sequences.keys():
        tokens.gaps.completed(tokens.sequences[number])
        expected.update(np.diff(tokens.times[number]).tolist())
        assert tokens.sequences[number].first_token_s == tokens.times[number][0]
    assert tokens.measured() == expected
    assert sum(expected.values()) == pytest.approx(tokens.gaps.weighted()[1].sum())
