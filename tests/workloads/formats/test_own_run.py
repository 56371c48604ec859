from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load.records import ATTEMPTS
from bench.metrics.records import REPLAYED, REQUESTS, PartWriter
from workloads.base import Client, Leave, Segment, Source, WorkloadError
from workloads.formats.base import Tally, TraceRow
from workloads.formats.opening import reading
from workloads.formats.own_run import RunFormat

Factory = pytest.TempPathFactory
FIRST: dict[str, Any] = {
    "request_id": 7, "kind": "chat", "prompt_tokens": 90, "output_tokens": 5, "branches": 1,
    "scheduled_s": 0.25, "status": "rejected", "cache_salt": "tenant",
    "prefix": [
        {"source": "shared", "id": 2**62, "tokens": 30}, {"source": "output", "id": 3, "tokens": 9},
    ],
    "leave": {"kind": "after_s", "after_s": 2.5, "after_tokens": None}, "tokens_per_s": None,
}  # fmt: skip
SECOND = FIRST | {
    "request_id": 3, "scheduled_s": 0.5, "kind": "", "branches": 4, "cache_salt": "", "prefix": [],
    "leave": None, "tokens_per_s": 5.3,
}  # fmt: skip
ROWS = [
    TraceRow(
        1, 250_000_000, 90, 5,
        (Segment(Source.SHARED, 2**62, 30), Segment(Source.OUTPUT, 3, 9)),
        "chat", "tenant", 1, 7, Client(Leave("after_s", 2.5)),
    ),
    TraceRow(2, 500_000_000, 90, 5, branches=4, request_id=3, client=Client(None, 5.3)),
]  # fmt: skip


def write(folder: Path, *rows: dict[str, Any], schema: pa.Schema | None = None) -> Path:
    parts = PartWriter(folder, schema or pa.schema([*REQUESTS, *REPLAYED]))
    for row in rows:
        parts.add(row)
        parts.flush()
    parts.close()
    return folder


def read(path: Path, tally: Tally | None = None) -> list[TraceRow]:
    with reading(path):
        return list(RunFormat().rows(path, tally or Tally()))


def test_requests_are_read_in_the_order_of_their_times(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    folder = write(run / "requests", SECOND, FIRST)
    assert read(run) == ROWS
    assert read(folder) == ROWS
    assert read(folder / "part-00001.parquet") == [ROWS[0]]


def test_at_one_moment_the_number_decides(tmp_path: Path) -> None:
    rows = [FIRST | {"request_id": number} for number in (9, 4, 6)]
    assert [row.request_id for row in read(write(tmp_path / "r", *rows))] == [4, 6, 9]


def test_a_run_without_prefixes_is_read_without(tmp_path: Path) -> None:
    (row,) = read(write(tmp_path / "r", FIRST, schema=REQUESTS))
    assert row == TraceRow(1, 250_000_000, 90, 5, kind="chat", request_id=7)


def test_of_a_load_run_the_first_attempts_are_read(tmp_path: Path) -> None:
    columns = {"request_id": 7, "kind": "chat", "prompt_tokens": 90, "output_tokens": 5,
               "branches": 1, "scheduled_s": 0.25}  # fmt: skip
    rows = [columns | {"attempt": number} for number in (1, 0)]
    (row,) = read(write(tmp_path / "r", *rows, schema=ATTEMPTS))
    assert row == TraceRow(1, 250_000_000, 90, 5, kind="chat", request_id=7)


def test_a_run_without_requests_has_none(tmp_path: Path) -> None:
    assert read(write(tmp_path / "r")) == []


SEGMENT = {"source": "shared", "id": 4, "tokens": 9}


@pytest.mark.parametrize(
    "wrong", [{"source": "x"}, {"id": -1}, {"tokens": 0}, {"id": None}, {"tokens": None}]
)
def test_a_wrong_segment_is_named(tmp_path: Path, wrong: dict[str, Any]) -> None:
    folder = write(tmp_path / "r", FIRST, SECOND | {"prefix": [SEGMENT, SEGMENT | wrong]})
    with pytest.raises(WorkloadError, match="line 2, column prefix: "):
        read(folder)


def test_a_segment_that_is_none_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "r", FIRST, SECOND | {"prefix": [SEGMENT, None]})
    with pytest.raises(WorkloadError, match="line 2, column prefix: None is not a segment"):
        read(folder)


LEAVING = {"kind": "after_s", "after_s": 1.0, "after_tokens": None}


@pytest.mark.parametrize(
    ("wrong", "column"),
    [
        ({"branches": -3}, "branches"),
        ({"branches": 10**9}, "branches"),
        ({"request_id": -1}, "request_id"),
        ({"tokens_per_s": 0.0}, "tokens_per_s"),
        ({"tokens_per_s": float("nan")}, "tokens_per_s"),
        ({"leave": LEAVING | {"after_s": -4.0}}, "after_s"),
        ({"leave": LEAVING | {"after_tokens": 0}}, "after_tokens"),
        ({"leave": LEAVING | {"kind": None}}, "leave"),
    ],
)
def test_what_no_run_records_is_named(tmp_path: Path, wrong: dict[str, Any], column: str) -> None:
    folder = write(tmp_path / "r", SECOND | wrong)
    with pytest.raises(WorkloadError, match=f"line 1, column {column}: "):
        read(folder)


def test_a_wrong_value_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "r", FIRST, SECOND | {"prompt_tokens": 0})
    with pytest.raises(WorkloadError, match="line 2, column prompt_tokens: 0 is not from 1"):
        read(folder)
    tally = Tally(skip_bad_rows=True)
    assert read(folder, tally) == [ROWS[0]]
    assert (tally.rows, tally.skipped) == (2, 1)


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=5))
def test_parts_in_any_order_are_one_run(tmp_path_factory: Factory, parts: list[list[int]]) -> None:
    folder = tmp_path_factory.mktemp("run") / "requests"
    schema = pa.schema([*REQUESTS, *REPLAYED])
    written = PartWriter(folder, schema)
    every = []
    for times in parts:
        for time in times:
            every.append((float(time), len(every)))
            written.add(FIRST | {"scheduled_s": every[-1][0], "request_id": every[-1][1]})
        written.flush()
    written.close()
    rows = read(folder)
    assert [(row.time_ns / 1e9, row.request_id) for row in rows] == sorted(every)
    assert [row.line for row in rows] == list(range(1, len(every) + 1))


def test_what_is_no_run_is_one_sentence(tmp_path: Path) -> None:
    table = pa.table({"request_id": [1]})
    pq.write_table(table, tmp_path / "other.parquet")
    with pytest.raises(WorkloadError, match=r"other\.parquet: lacks the column scheduled_s; give"):
        read(tmp_path / "other.parquet")
    columns = {
        "request_id": [1],
        "scheduled_s": ["noon"],
        "prompt_tokens": [1],
        "output_tokens": [1],
    }
    pq.write_table(pa.table(columns), tmp_path / "text.parquet")
    with pytest.raises(WorkloadError, match=r"text\.parquet cannot be read: .*'noon'.*[^.]\.$"):
        read(tmp_path / "text.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(WorkloadError, match=r"empty: no requests are in this folder; give that of"):
        read(tmp_path / "empty")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "other.parquet").read_bytes()[:-9])
    with pytest.raises(WorkloadError, match=r"cut\.parquet cannot be read: .*[^.]\.$"):
        read(tmp_path / "cut.parquet")
    with pytest.raises(WorkloadError, match="a request_id is there twice; give the files"):
        read(write(tmp_path / "twice", FIRST, FIRST))
    with pytest.raises(WorkloadError, match="output_tokens is missing in some rows"):
        read(write(tmp_path / "null", FIRST | {"output_tokens": None}))
    with pytest.raises(WorkloadError, match="scheduled_s is no time in some rows"):
        read(write(tmp_path / "nan", FIRST, FIRST | {"scheduled_s": float("nan")}))
