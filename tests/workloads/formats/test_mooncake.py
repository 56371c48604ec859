from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.formats.base import MalformedLineError, TraceRow
from workloads.formats.mooncake import MooncakeFormat


def parse(**changes: object) -> TraceRow:
    record: dict[str, object] = {"timestamp": 5, "input_length": 600, "output_length": 9}
    return parse_text(json.dumps({**record, **changes}))


def parse_text(line: str) -> TraceRow:
    return next(MooncakeFormat().rows([(3, line)]))


def test_timestamps_are_milliseconds_and_blocks_512_tokens() -> None:
    assert parse(hash_ids=[8, 9]) == TraceRow(3, 5_000_000, 600, 9, (8, 9), 512)


def test_a_fraction_of_a_millisecond_is_kept() -> None:
    assert parse(timestamp=0.1).time_ns == 100_000


def test_without_ids_the_prompt_is_the_requests_own() -> None:
    row = parse()
    assert (row.prefix_ids, row.prefix_block_tokens) == ((), 0)


@given(
    st.integers(0, 10**12), st.integers(1, 5000), st.integers(1, 10**6), st.integers(0, 2**63 - 10)
)
def test_any_row_reads_back_as_it_was_written(
    timestamp: int, prompt: int, output: int, first_id: int
) -> None:
    ids = list(range(first_id, first_id + -(-prompt // 512)))
    row = parse(timestamp=timestamp, input_length=prompt, output_length=output, hash_ids=ids)
    assert row == TraceRow(3, timestamp * 10**6, prompt, output, tuple(ids), 512)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"timestamp": -1}, "line 3, column timestamp: -1 is not a number of milliseconds"),
        ({"timestamp": "5"}, "column timestamp: '5' is not a number of milliseconds"),
        ({"timestamp": float("nan")}, "column timestamp: nan is not a number"),
        ({"input_length": 0}, "column input_length: 0 is not from 1"),
        ({"input_length": 6.5}, "column input_length: 6.5 is not a whole number of tokens"),
        ({"output_length": True}, "column output_length: True is not a whole number"),
        ({"output_length": None}, "column output_length: None is not a whole number"),
        ({"hash_ids": 7}, "column hash_ids: 7 is not a list of block ids"),
        ({"hash_ids": [1, 2, 3]}, "has 3 ids for 600 tokens, 2 blocks of 512"),
        ({"hash_ids": [1, -2]}, "column hash_ids: -2 is not a whole number from 0"),
        ({"hash_ids": [1, 2**63]}, "column hash_ids: 9223372036854775808 is not a whole number"),
    ],
)
def test_a_wrong_value_is_named_by_line_and_column(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(MalformedLineError, match=message):
        parse(**changes)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"timestamp": 5', "line 3: .* is not JSON"),
        ("[" * 100_000, "line 3: .* is not JSON"),
        ("[1, 2]", "line 3: .* is not a JSON object"),
        ('{"timestamp": 5, "input_length": 6}', "line 3, column output_length: .* lacks this"),
    ],
)
def test_a_line_that_is_no_record_is_named(line: str, message: str) -> None:
    with pytest.raises(MalformedLineError, match=message):
        parse_text(line)
