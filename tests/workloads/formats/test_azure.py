from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.formats.base import MalformedLineError, TraceRow

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
MOMENT = "2023-11-16 18:15:46.6805900"
Read = Callable[..., list[TraceRow]]
ReadOne = Callable[[str], TraceRow]


@pytest.fixture(scope="session")
def parse(read: Read) -> Read:
    return lambda *lines: read("\n".join(lines), "azure")


@pytest.fixture(scope="session")
def parse_one(read: Read) -> ReadOne:
    return lambda line: read(f"{HEADER}\n{line}\n", "azure")[0]


def test_seven_fractional_digits_are_kept(parse: Read) -> None:
    first, next_tick = parse(HEADER, f"{MOMENT},374,44", "2023-11-16 18:15:46.6805901,396,109")
    assert next_tick.time_ns - first.time_ns == 100
    assert first[2:4] == (374, 44)
    assert [first.line, next_tick.line] == [2, 3]


@pytest.mark.parametrize(
    ("fraction", "nanoseconds"), [("", 0), (".5", 500_000_000), (".000000001", 1)]
)
def test_a_second_may_have_any_fraction_down_to_a_nanosecond(
    parse_one: ReadOne, fraction: str, nanoseconds: int
) -> None:
    assert parse_one(f"2023-11-16T18:15:46{fraction},1,1").time_ns % 10**9 == nanoseconds


@given(st.datetimes(), st.integers(0, 999), st.integers(1, 10**9 - 1), st.integers(1, 10**9 - 1))
def test_any_row_reads_back_as_it_was_written(
    parse_one: ReadOne, moment: datetime, nanoseconds: int, prompt: int, output: int
) -> None:
    text = f"{moment:%H:%M:%S.%f}{nanoseconds:03d}"
    row = parse_one(f"{moment.date().isoformat()} {text},{prompt},{output}")
    microseconds = (moment - datetime.min) // timedelta(microseconds=1)
    day_one_ns = 86_400 * 10**9  # ordinals count from day 1
    assert row.time_ns - day_one_ns == microseconds * 1000 + nanoseconds
    assert (row.prompt_tokens, row.output_tokens) == (prompt, output)


def test_the_times_of_2024_count_from_utc(parse: Read) -> None:
    rows = parse(
        HEADER,
        "2024-05-12 00:00:00+00:00,1452,3",
        "2024-05-12 00:00:00.001163+00:00,584,3",
        "2024-05-12 02:00:01+02:00,862,38",
    )
    assert [row.time_ns - rows[0].time_ns for row in rows] == [0, 1_163_000, 10**9]


def test_spaces_and_quotes_around_values_are_fine(parse_one: ReadOne) -> None:
    assert parse_one(f'{MOMENT} , "374",\t44') == parse_one(f"{MOMENT},374,44")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{MOMENT},374", "line 2: .* has 2 values; 3 are expected"),
        (f"{MOMENT},374,44,1", "line 2: .* has 4 values"),
        ("yesterday,374,44", "line 2, column TIMESTAMP: 'yesterday' is not a time like"),
        ("2023-13-16 18:15:46.1,374,44", "column TIMESTAMP: '2023-13-16 18:15:46.1' is not a"),
        ("2023-11-16 18:15:61.1,374,44", "column TIMESTAMP: .* is not a time like"),
        (f"{MOMENT},x,44", "line 2, column ContextTokens: 'x' is not a whole number of tokens"),
        (f"{MOMENT},3.5,44", "column ContextTokens: '3.5' is not a whole number"),
        (f"{MOMENT},,44", "column ContextTokens: '' is not a whole number"),
        (f"{MOMENT},374,0", "line 2, column GeneratedTokens: 0 is not from 1 to 2,147,483,647"),
        (f"{MOMENT},-374,44", "column ContextTokens: -374 is not from 1"),
        (f"{MOMENT},374,99999999999", "column GeneratedTokens: 99999999999 is not from 1"),
        (f'{MOMENT},374,"44', "line 2: .* is not a line of CSV"),
    ],
)
def test_a_malformed_line_is_named_by_line_column_and_value(
    parse: Read, line: str, message: str
) -> None:
    with pytest.raises(MalformedLineError, match=message):
        parse(HEADER, line)


def test_a_file_without_the_header_is_refused(parse: Read) -> None:
    with pytest.raises(MalformedLineError, match=r"line 1: .* has no column TIMESTAMP"):
        parse(f"{MOMENT},374,44")


def test_a_long_value_is_cut_in_the_message(parse: Read) -> None:
    with pytest.raises(MalformedLineError) as caught:
        parse(HEADER, "x" * 5000)
    assert len(str(caught.value)) < 250
