from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workloads.formats.clocks import seconds, wall_clock

NS_PER_S = 10**9


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("7564.0", 7564 * NS_PER_S),
        ("19440110.0", 19440110 * NS_PER_S),
        ("0", 0),
        ("5.", 5 * NS_PER_S),
        ("0.1", 100_000_000),
        ("199.96150599999999", 199_961_506_000),  # Vidur's, 10 attoseconds below it
        ("1e-05", 10_000),
        ("2.5E+3", 2500 * NS_PER_S),
        ("999999999999999.999999999", 10**24 - 1),
    ],
)
def test_seconds_are_whole_nanoseconds(text: str, nanoseconds: int) -> None:
    assert seconds(text) == nanoseconds


@given(st.floats(0, 1e15, exclude_max=True))
def test_any_float_as_python_writes_it_is_rounded_exactly(value: float) -> None:
    assert seconds(repr(value)) == round(Fraction(repr(value)) * NS_PER_S)


@given(st.text(max_size=12))
@example("١٢")
@example("²")
@example("1_000")
@example("-1")
@example("+1")
@example("nan")
@example("inf")
@example(" 1")
@example("1e999")
@example("1" * 16)
def test_what_is_no_plain_number_of_seconds_is_none(text: str) -> None:
    plain = text.isascii() and text[:1].isdigit() and not set(text) - set("0123456789.eE+-")
    assert plain or seconds(text) is None


@pytest.mark.parametrize("text", ["1e999", "1" * 16, "1.2.3", "1e", "1e+", ".5", ""])
def test_numbers_that_no_trace_has_are_none(text: str) -> None:
    assert seconds(text) is None


@given(
    st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29)),
    st.integers(-24 * 60 + 1, 24 * 60 - 1),
    st.sampled_from([" ", "T"]),
)
def test_a_time_with_an_offset_is_that_of_utc(moment: datetime, minutes: int, gap: str) -> None:
    zone = timezone(timedelta(minutes=minutes))
    text = moment.replace(tzinfo=zone).isoformat(gap)
    utc = moment.replace(tzinfo=zone).astimezone(UTC).replace(tzinfo=None)
    assert wall_clock(text) == wall_clock(utc.isoformat())


def test_both_forms_of_azures_times_are_one_clock() -> None:
    whole, later = (
        wall_clock("2024-05-12 00:00:00+00:00"),
        wall_clock("2024-05-12 00:00:00.001163+00:00"),
    )
    assert whole is not None
    assert later == whole + 1_163_000
    assert wall_clock("2024-05-12 00:00:00") == wall_clock("2024-05-12T00:00:00Z") == whole


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2023-13-16 18:15:46.1", "2023-11-16 18:15:61.1", "2023-11-16",
     "2023-11-16 18:15:46.", "2023-11-16 18:15:46.1234567890", "2024-05-12 00:00:00+0000",
     "2024-05-12 00:00:00 +00:00", "0000-01-01 00:00:00", "２023-11-16 18:15:46"],
)  # fmt: skip
def test_what_is_no_time_is_none(text: str) -> None:
    assert wall_clock(text) is None
