"""Where held memory went, by hand: 1 byte a slot, a budget of 100 slots, steps of 2 seconds."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from backends.base import Usage
from bench.metrics.accounting import MemoryAccount, Split
from bench.metrics.summary import held_waste, memory_bound

STEP_S = 2.0


class Live(NamedTuple):
    id: int
    tokens: int


class Books:
    """An account that is shown one sequence in a step after another."""

    def __init__(self) -> None:
        self.account = MemoryAccount(token_bytes=1, budget_bytes=100)

    def step(self, slots: int, *live: Live, bound: bool = True, rounding: int = 0) -> None:
        """All sequences together hold `slots` slots; memory-bound unless said otherwise."""
        usage = Usage(held=slots, rounding=rounding, cached=0, free=100 - slots - rounding)
        for sequence in live:
            self.account.filled(sequence.id, sequence.tokens)
        self.account.observe(STEP_S, usage, bound)
        self.account.sample()


def test_a_maximum_buffer_is_reserved_up_to_the_last_token_and_wasted_above() -> None:
    """A prompt of 30 and 3 tokens in 50 slots: 30, 31, 32 live tokens in three steps."""
    books = Books()
    books.account.opened(7, 50)
    for computed in (30, 31, 32):
        books.step(50, Live(7, computed))
    books.account.closed(7, filled=32)
    books.account.finish()
    # Slots 32 to 50 are never filled: 18 in each step. Below 32, 2 then 1 then 0 are filled later.
    assert books.account.samples == [Split(2, 18, 0), Split(1, 18, 0), Split(0, 18, 0)]
    unfilled = books.account.bound.unfilled
    assert unfilled == Split(reservation=3 * STEP_S, internal=54 * STEP_S, undetermined=0)
    assert memory_bound(books.account, simulated_s=12.0) == pytest.approx(
        {
            "share_of_time": 6 / 12,
            "token_states": (30 + 31 + 32) / 300,
            "reservation": 3 / 300,
            "internal": 54 / 300,
            "undetermined": 0,
            "rounding": 0,
            "cached": 0,
            "external": 3 * 50 / 300,
            "batch_mean": 1.0,
        }
    )
    assert held_waste(books.account) == pytest.approx(1 - 93 / 150)


def test_a_preemption_makes_what_was_unfilled_internal() -> None:
    """10 and 11 of 50 slots are filled; the second hold goes on to 13 tokens and ends there."""
    books = Books()
    books.account.opened(7, 50)
    books.step(50, Live(7, 10))
    books.step(50, Live(7, 11))
    books.account.closed(7, filled=11)  # preempted
    books.account.opened(7, 50)
    books.step(50, Live(7, 12))
    books.step(50, Live(7, 13))
    books.account.closed(7, filled=13)
    assert books.account.samples == [
        Split(1, 39, 0), Split(0, 39, 0), Split(1, 37, 0), Split(0, 37, 0)
    ]  # fmt: skip
    expected = Split(2 * STEP_S, (39 + 39 + 37 + 37) * STEP_S, 0)
    assert books.account.bound.unfilled == expected


def test_a_bucket_that_filled_up_was_reservation_to_its_end() -> None:
    """8 slots until 8 tokens are there, then 16, of which 10 are filled."""
    books = Books()
    books.account.opened(7, 8)
    books.step(8, Live(7, 6))
    books.step(8, Live(7, 8))
    books.account.resized(7, 16)
    books.step(16, Live(7, 9))
    books.step(16, Live(7, 10))
    books.account.closed(7, filled=10)
    # In the bucket of 8, all that was empty came to be filled; in that of 16 it is 10.
    assert books.account.samples == [
        Split(2, 0, 0), Split(0, 0, 0), Split(1, 6, 0), Split(0, 6, 0)
    ]  # fmt: skip
    assert books.account.bound.unfilled == Split(3 * STEP_S, 12 * STEP_S, 0)


def test_open_holds_at_the_end_are_undetermined() -> None:
    books = Books()
    books.account.opened(7, 50)
    books.step(50, Live(7, 10))
    books.step(50, Live(7, 20))
    books.account.finish()
    assert books.account.samples == [Split(0, 0, 40), Split(0, 0, 30)]
    assert books.account.bound.unfilled == Split(0, 0, 70 * STEP_S)


def test_only_memory_bound_time_counts_in_shares_but_all_of_it_in_held_waste() -> None:
    books = Books()
    books.account.opened(7, 50)
    books.step(50, Live(7, 10), bound=False)
    books.step(50, Live(7, 20), bound=True, rounding=5)
    books.account.closed(7, filled=20)
    shares = memory_bound(books.account, simulated_s=10.0)
    assert shares == pytest.approx(
        {
            "share_of_time": 2 / 10,
            "token_states": 0.20,
            "reservation": 0.0,
            "internal": 0.30,
            "undetermined": 0.0,
            "rounding": 0.05,
            "cached": 0.0,
            "external": 0.45,
            "batch_mean": 1.0,
        }
    )
    assert held_waste(books.account) == pytest.approx(1 - 30 / 100)


def test_never_memory_bound_is_null_and_so_is_waste_of_nothing() -> None:
    books = Books()
    assert memory_bound(books.account, simulated_s=1.0) is None
    assert held_waste(books.account) is None
    books.account.opened(7, 50)
    books.step(50, Live(7, 10), bound=False)
    assert memory_bound(books.account, simulated_s=1.0) is None


def test_a_sample_is_settled_when_no_hold_that_it_saw_is_open() -> None:
    books = Books()
    books.account.opened(1, 10)
    books.step(10, Live(1, 1))
    books.account.opened(2, 10)
    books.step(20, Live(1, 2), Live(2, 1))
    assert books.account.settled() == 0
    books.account.closed(1, filled=2)
    assert books.account.settled() == 1, "the second sample waits for the second hold"
    books.step(10, Live(2, 2))
    books.account.closed(2, filled=2)
    assert books.account.settled() == 3


def test_what_grows_by_the_step_is_as_what_is_told_after_each() -> None:
    """Two of three sequences grow in every step, one by itself; one ends, and its row is used
    again. Buffers are so many that rows have to be added."""
    told, grown = Books(), Books()
    for books in (told, grown):
        for number in range(100):
            books.account.opened(number, 50)
    for number in range(100):
        grown.account.filled(number, number % 7, per_step=number % 2)
    for step in range(1, 5):
        grown.account.stepped()
        grown.step(100)
        told.step(100, *(Live(n, n % 7 + step * (n % 2)) for n in range(100)))
    for books in (told, grown):
        books.account.closed(3, filled=9)
        books.account.opened(200, 20)
        books.step(100, Live(200, 5), bound=False)
        books.step(100, Live(200, 6))
        books.account.closed(200, filled=6)
    assert grown.account.live_tokens == told.account.live_tokens > 0
    assert grown.account.samples == told.account.samples
    for books in (told, grown):
        books.account.finish()
    assert grown.account.bound == told.account.bound
