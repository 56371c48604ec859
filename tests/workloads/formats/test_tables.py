from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workloads.formats.base import MalformedLineError, Tally, TraceRow

Read = Callable[..., list[TraceRow]]
S = 10**9


class Sample(NamedTuple):
    """A header and two lines as the source has them; the columns of time, prompt and output."""

    header: str
    lines: tuple[str, str]
    columns: tuple[str, str, str]
    rows: list[tuple[int, int, int]]


SAMPLES = {
    "azure": Sample(
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        ("0001-01-01 00:00:00.0000001,374,44", "0001-01-01 00:01:00,396,109"),
        ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        [(86_400 * S + 100, 374, 44), (86_460 * S, 396, 109)],
    ),
    "burstgpt": Sample(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
        ("5,ChatGPT,472,18,490,Conversation log", "45,ChatGPT,1087,230,1317,Conversation log"),
        ("Timestamp", "Request tokens", "Response tokens"),
        [(5 * S, 472, 18), (45 * S, 1087, 230)],
    ),
    "burstgpt, release 3": Sample(
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,"
        "Log Type",
        (
            "19440110.0,1722ac82-0a46-4bf0-aa08-89794e7a2b3f,43,GPT-4,906,446,1352,"
            "Conversation log",
            "19440161.0,,2,ChatGPT,36,29,65,API log",
        ),
        ("Timestamp", "Request tokens", "Response tokens"),
        [(19440110 * S, 906, 446), (19440161 * S, 36, 29)],
    ),
    "vidur": Sample(
        "arrived_at,num_prefill_tokens,num_decode_tokens",
        ("0.0,4808,10", "0.052,3180,8"),
        ("arrived_at", "num_prefill_tokens", "num_decode_tokens"),
        [(0, 4808, 10), (52_000_000, 3180, 8)],
    ),
    "splitwise": Sample(
        "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,"
        "token_size",
        ("0,2,0,1.5,1,4096.0,32.0", "1,2,0,3,1,7564.0,8"),
        ("arrival_timestamp", "prompt_size", "token_size"),
        [(1_500_000_000, 4096, 32), (3 * S, 7564, 8)],
    ),
}
KINDS = sorted(SAMPLES)


def lengths(rows: list[TraceRow]) -> list[tuple[int, int, int]]:
    return [(row.time_ns, row.prompt_tokens, row.output_tokens) for row in rows]


def text_of(kind: str, end: str = "\n") -> str:
    sample = SAMPLES[kind]
    return end.join([sample.header, *sample.lines])


@pytest.mark.parametrize("kind", KINDS)
def test_the_lines_of_a_source_are_recognised_and_read(read: Read, kind: str) -> None:
    rows = read(text_of(kind))
    assert lengths(rows) == SAMPLES[kind].rows
    assert [row.line for row in rows] == [2, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_found_by_name_wherever_they_are(read: Read, kind: str) -> None:
    table = [line.split(",") for line in text_of(kind).split("\n")]
    turned = "\n".join(",".join(["x", *reversed(line)]) for line in table)
    assert lengths(read(turned)) == SAMPLES[kind].rows


@given(
    kind=st.sampled_from(KINDS),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    bom=st.booleans(),
    last_end=st.booleans(),
    odd=st.sampled_from(["", "blank lines", "spaces", "quotes"]),
)
def test_line_ends_marks_blanks_spaces_and_quotes_change_nothing(
    read: Read, kind: str, end: str, bom: bool, last_end: bool, odd: str
) -> None:
    lines = text_of(kind).split("\n")
    if odd == "blank lines":
        lines = [each for line in lines for each in (" ", line, "")]
    elif odd in ("spaces", "quotes"):
        form = " {} " if odd == "spaces" else '"{}"'
        lines[1:] = [",".join(map(form.format, line.split(","))) for line in lines[1:]]
    text = ("\ufeff" if bom else "") + end.join(lines) + (end if last_end else "")
    assert lengths(read(text)) == SAMPLES[kind].rows


@given(
    kind=st.sampled_from(KINDS),
    column=st.integers(0, 2),
    value=st.one_of(
        st.text(max_size=8),
        st.text(alphabet="0123456789.eE+-_ ", max_size=8),
        st.floats().map(repr),
    ),
)
@example("vidur", 1, "7564.0")
@example("vidur", 1, "1_0")
@example("vidur", 2, "١")
@example("vidur", 1, "1" * 5000)
@example("vidur", 0, "0." + "1" * 5000)
@example("splitwise", 0, "1e400")
@example("burstgpt", 2, "-0")
@example("azure", 1, "\x00")
@example("azure", 2, '"')
@example("azure", 0, "x" * 200_000)
def test_any_text_in_any_field_is_its_number_or_refused_by_line_and_column(
    read: Read, kind: str, column: int, value: str
) -> None:
    sample = SAMPLES[kind]
    names = sample.header.split(",")
    fields = sample.lines[0].split(",")
    fields[names.index(sample.columns[column])] = value
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(fields)
    text = f"{sample.header}\n{sample.lines[1]}\n{line.getvalue()}"
    tally = Tally(keep_failed=True)
    refused, rows = "", []
    try:
        rows = read(text, tally=tally)
    except MalformedLineError as error:
        refused = str(error)
    if refused:
        cell = "|" if set(value) & set('\n\r",\x00') or len(value) > 100_000 else ""
        assert re.match(rf"line \d+(, column {sample.columns[column]}{cell}): ", refused)
        return
    assert lengths(rows)[0] == sample.rows[1]
    if column == 0 and kind == "azure":
        return  # tests of clocks
    number = Fraction(value.strip())
    read_back = lengths(rows)[1][column]
    if column == 0:
        number = Fraction(round(number * S))
    elif tally.failed:
        number += 1
    assert read_back == number


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arrived_at,num_prefill_tokens\n0,1\n", "line 1: .* has no column num_decode_tokens"),
        ("num_prefill_tokens,arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,2,3",
         "line 1, column num_prefill_tokens: .* has this column twice"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n0,1\n", "line 2: '0,1' has 2 values; 3"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n\n0,1,2\n1,\"5\n6\",2\n",
         "line 4: '1,\"5' is not a line of CSV"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,2\n1,0,2\n",
         "line 3, column num_prefill_tokens: 0 is not from 1 to"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,2\n-1,1,2\n",
         "line 3, column arrived_at: '-1' is not a number of seconds"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,2\n1,1,0\n",
         "line 3, column num_decode_tokens: 0 is not from 1 to"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,2\n1,1,2.5\n",
         r"line 3, column num_decode_tokens: '2\.5' is not a whole number of tokens"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,2\n5.2,37",
         r"line 3: '5\.2,37' has 2 values; 3 are expected"),  # a file that is cut short
        ("", "line 1: '' has no column arrived_at"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(read: Read, text: str, message: str) -> None:
    with pytest.raises(MalformedLineError, match=message):
        read(text, "vidur")


BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,GPT-4,472,18,490,API log\n6,GPT-4,30,0,30,API log\n7,GPT-4,31,0.0,31,API log\n"
)


def test_requests_without_a_response_are_left_out_and_counted(read: Read) -> None:
    tally = Tally()
    assert lengths(read(BURSTGPT, tally=tally)) == [(5 * S, 472, 18)]
    assert (tally.rows, tally.failed, tally.skipped) == (3, 2, 0)


def test_requests_without_a_response_are_kept_as_ones_of_a_single_token(read: Read) -> None:
    tally = Tally(keep_failed=True)
    rows = lengths(read(BURSTGPT, tally=tally))
    assert rows == [(5 * S, 472, 18), (6 * S, 30, 1), (7 * S, 31, 1)]
    assert (tally.rows, tally.failed) == (3, 2)


def test_bad_rows_are_skipped_and_counted_wherever_they_are(read: Read) -> None:
    good = "0,1,2"
    bad = ["x,1,2", "0,1", "0,0,2", "0,1,2,3", '"0,1,2', "0,1.5,2"]
    lines = [good] * 30_000  # several blocks
    for number, line in enumerate(bad):
        lines[4_000 * number + 7] = line
    tally = Tally(skip_bad_rows=True)
    rows = read("arrived_at,num_prefill_tokens,num_decode_tokens\n" + "\n".join(lines), tally=tally)
    assert len(rows) == 30_000 - len(bad)
    assert (tally.rows, tally.skipped) == (30_000, len(bad))
    assert str(tally.first_skipped).startswith("line 9, column arrived_at: 'x' is not a number of")
    assert [row.line for row in rows] == [
        number + 2 for number, line in enumerate(lines) if line == good
    ]


def test_lengths_without_times_are_read_by_any_usual_name(read: Read) -> None:
    tables = [
        "prompt_tokens,output_tokens\n7,3\n2,9\n",
        "\n id , output_len ,prompt_len\r\na,3, 7\r\n\r\nb,9,2",
        "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n7,3,10,2.3\n2,9,11,0.2\n",
        "ContextTokens,GeneratedTokens\n7,3\n2,9",
    ]
    for table in tables:
        assert lengths(read(table)) == [(0, 7, 3), (0, 2, 9)]
