from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.base import Segment, Source
from workloads.formats.base import MalformedLineError, Tally, TraceRow

Read = Callable[..., list[TraceRow]]

# A line of each source, and what is told by it: time, lengths, blocks and their size.
MOONCAKE = {"timestamp": 5, "input_length": 600, "output_length": 9, "hash_ids": [8, 9]}
BAILIAN = {
    "chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, "input_length": 21,
    "output_length": 132, "type": "text", "turn": 2, "hash_ids": [1089, 1090],
}  # fmt: skip
LLMSERVINGSIM = {
    "input_toks": 10, "output_toks": 70, "arrival_time_ns": 46926808, "input_tok_ids": [1, 2],
}  # fmt: skip


def prefix(tokens: int, *ids: int) -> tuple[Segment, ...]:
    return tuple(Segment(Source.SHARED, number, tokens) for number in ids)


@pytest.mark.parametrize(
    ("record", "row"),
    [
        (MOONCAKE, TraceRow(1, 5_000_000, 600, 9, prefix(512, 8, 9))),
        (BAILIAN, TraceRow(1, 61_114_000_000, 21, 132, prefix(16, 1089, 1090))),
        (LLMSERVINGSIM, TraceRow(1, 46_926_808, 10, 70)),
        ({"prompt_tokens": 7, "output_tokens": 3}, TraceRow(1, 0, 7, 3)),
        ({"output_len": 3.0, "input_len": "7564.0"}, TraceRow(1, 0, 7564, 3)),
    ],
)
def test_the_lines_of_a_source_are_recognised_and_read(
    read: Read, record: dict[str, Any], row: TraceRow
) -> None:
    assert read(json.dumps(record)) == [row]


def parse(read: Read, **changes: object) -> TraceRow:
    record = {key: value for key, value in MOONCAKE.items() if key != "hash_ids"}
    return read("\n\n" + json.dumps(record | changes), "mooncake")[0]


def test_a_fraction_of_a_millisecond_is_kept(read: Read) -> None:
    assert parse(read, timestamp=0.1).time_ns == 100_000


def test_without_ids_the_prompt_is_the_requests_own(read: Read) -> None:
    assert parse(read).prefix == ()


@given(
    st.integers(0, 10**12), st.integers(1, 5000), st.integers(1, 10**6), st.integers(0, 2**63 - 10)
)
def test_any_row_reads_back_as_it_was_written(
    read: Read, timestamp: int, prompt: int, output: int, first_id: int
) -> None:
    ids = range(first_id, first_id + -(-prompt // 512))
    row = parse(
        read, timestamp=timestamp, input_length=prompt, output_length=output, hash_ids=[*ids]
    )
    assert row == TraceRow(3, timestamp * 10**6, prompt, output, prefix(512, *ids))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"timestamp": -1}, "line 3, column timestamp: -1 is not a number of milliseconds"),
        ({"timestamp": "5"}, "column timestamp: '5' is not a number of milliseconds"),
        ({"timestamp": float("nan")}, "column timestamp: nan is not a number"),
        ({"timestamp": 1e300}, r"column timestamp: 1e\+300 is not a number of mill.* to 1e\+15"),
        ({"input_length": 0}, "column input_length: 0 is not from 1"),
        ({"input_length": 6.5}, r"column input_length: 6\.5 is not a whole number of tokens"),
        ({"output_length": True}, "column output_length: True is not a whole number"),
        ({"output_length": None}, "column output_length: None is not a whole number"),
        ({"hash_ids": 7}, "column hash_ids: 7 is not a list of block ids"),
        ({"hash_ids": [1, 2, 3]}, "has 3 ids for 600 tokens, 2 blocks of 512"),
        ({"hash_ids": [1, -2]}, "column hash_ids: -2 is not a whole number from 0"),
        ({"hash_ids": [1, 2**63]}, "column hash_ids: 9223372036854775808 is not a whole number"),
    ],
)
def test_a_wrong_value_is_named_by_line_and_column(
    read: Read, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(MalformedLineError, match=message):
        parse(read, **changes)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"timestamp": 5', "line 3: .* is not JSON"),
        ("[" * 100_000, "line 3: .* is not JSON"),
        ('{"timestamp": ' + "1" * 5000 + "}", "line 3: .* is not JSON"),
        ("[1, 2]", "line 3: .* is not a JSON object"),
        ('{"timestamp": 5, "input_length": 6}', "line 3, column output_length: .* lacks this"),
    ],
)
def test_a_line_that_is_no_record_is_named(read: Read, line: str, message: str) -> None:
    with pytest.raises(MalformedLineError, match=message):
        read(f"\n\n{line}", "mooncake")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(st.sampled_from(sorted(MOONCAKE)), values)
def test_any_value_in_any_field_is_its_number_or_refused_by_line_and_column(
    read: Read, column: str, value: object
) -> None:
    tally = Tally(skip_bad_rows=True)
    text = json.dumps(MOONCAKE) + "\n" + json.dumps(MOONCAKE | {column: value})
    rows = read(text, "mooncake", tally=tally)
    assert len(rows) + tally.skipped == 2
    if tally.skipped:
        assert str(tally.first_skipped).startswith(f"line 2, column {column}: ")
    elif column == "hash_ids":
        assert [segment.id for segment in rows[1].prefix] == value
    else:
        number = {"timestamp": 1, "input_length": 2, "output_length": 3}[column]
        factor = 10**6 if column == "timestamp" else 1
        assert rows[1][number] == round(float(value) * factor)  # type: ignore[arg-type]


def test_a_session_of_llmservingsim_is_refused(read: Read) -> None:
    session = {"session_id": "a", "arrival_time_ns": 5, "sub_requests": []}
    with pytest.raises(MalformedLineError, match=r"line 2, column input_toks: .* lacks this"):
        read(json.dumps(LLMSERVINGSIM) + "\n" + json.dumps(session))
