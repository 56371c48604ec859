"""No number is given twice, and few are kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bench.serve.numbers import Numbers


@given(st.lists(st.integers(0, 12)))
def test_a_number_is_taken_once(numbers: list[int]) -> None:
    taken, seen = Numbers(), set[int]()
    for number in numbers:
        assert taken.take(number) == (number not in seen)
        seen.add(number)


def test_counting_up_keeps_none_whatever_the_order_nearby() -> None:
    taken = Numbers()
    for number in range(0, 10_000, 2):
        assert taken.take(number + 1)
        assert taken.take(number)
    assert len(taken) == 0
