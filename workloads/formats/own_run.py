"""A run of fragbench: the requests that it recorded, to send them again.

Every request has the time at which it was to be sent, turns of a session too: they were sent when
the turn before had ended, and are sent at the same times again, however fast that one is now. Times
and lengths are those asked for, not those that came of them. Samples and beams look alike.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from workloads.base import Client, Leave, Segment, Source, WorkloadError
from workloads.formats.base import MalformedLineError, Tally, TraceRow, rows_of, token_count
from workloads.settings import MAX_DURATION_S, MAX_TOKENS
from workloads.survivors.base import MAX_BRANCHES

SEGMENT = pa.struct([("source", pa.string()), ("id", pa.int64()), ("tokens", pa.int64())])
LEAVE = pa.struct([("kind", pa.string()), ("after_s", pa.float64()), ("after_tokens", pa.int64())])
_NEEDED = {
    "request_id": pa.int64(),
    "scheduled_s": pa.float64(),
    "prompt_tokens": pa.int64(),
    "output_tokens": pa.int64(),
}
_OPTIONAL = {
    "kind": pa.string(),
    "branches": pa.int64(),
    "cache_salt": pa.string(),
    "prefix": pa.list_(SEGMENT),
    "leave": LEAVE,
    "tokens_per_s": pa.float64(),
}
_TRY = "attempt"  # of a load run: only the first, 0, is a request of its own
_SOURCES = {source.value: source for source in Source}
_BATCH_ROWS = 4096
_MOST = 2**62


class RunFormat:
    """The Parquet files of a run's requests, in order of their times.

    Requests are written as they end. A file is read when the time comes at which its first one was
    sent, and kept until all of it has been: what takes memory is the files of requests that were
    open at one moment. Requests that went over HTTP are without prefixes and clients: their prompts
    share nothing, and their answers are waited for.
    """

    name = "fragbench"
    expects = "the folder of a run, or a Parquet file of its requests"
    time = "scheduled_s"
    estimates_tokens = False

    def recognises(self, first_line: str) -> bool:
        return first_line.startswith("PAR1")

    def rows(self, path: Path, tally: Tally) -> Iterator[TraceRow]:
        return rows_of(enumerate(_in_order(path), 1), _row, tally)


def request_files(path: Path) -> list[Path]:
    """The Parquet files that hold the requests of the run at `path`: its folder, their folder, or
    one of them. Raises WorkloadError."""
    if not path.is_dir():
        return [path]
    folder = path / "requests" if (path / "requests").is_dir() else path
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise WorkloadError(f"{path}: no requests are in this folder; give that of one run.")
    return files


def _in_order(path: Path) -> Iterator[dict[str, Any]]:
    """The requests by time and number. Raises WorkloadError, OSError and ArrowException."""
    waiting = _files_by_start(path)
    heads: list[tuple[float, int, Iterator[dict[str, Any]], dict[str, Any]]] = []
    while waiting or heads:
        while waiting and (not heads or waiting[-1][0] <= heads[0][0]):
            _push(heads, _records(waiting.pop()[1]))
        _, _, records, record = heapq.heappop(heads)
        yield record
        _push(heads, records)


def _push(heads: list[Any], records: Iterator[dict[str, Any]]) -> None:
    record = next(records, None)
    if record is not None:
        heapq.heappush(heads, (record["scheduled_s"], record["request_id"], records, record))


def _files_by_start(path: Path) -> list[tuple[float, Path]]:
    """When the first request of each file was sent, the last file first. Raises WorkloadError."""
    starts, numbers = [], []
    for file in request_files(path):
        times = {name: _NEEDED[name] for name in ("request_id", "scheduled_s")}
        table = _read(path, file, times)
        numbers.append(table["request_id"].to_numpy())
        times_s = table["scheduled_s"].to_numpy()
        if not np.isfinite(times_s).all():
            raise WorkloadError(f"{path}: scheduled_s is no time in some rows; give a whole run.")
        if len(times_s):
            starts.append((float(times_s.min()), file))
    every = np.concatenate(numbers)
    if len(np.unique(every)) < len(every):
        raise WorkloadError(f"{path}: a request_id is there twice; give the files of one run.")
    return sorted(starts, reverse=True)


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """One file's requests by time and number."""
    table = _read(path, path, _NEEDED | _OPTIONAL)
    table = table.sort_by([("scheduled_s", "ascending"), ("request_id", "ascending")])
    batches = table.to_batches(max_chunksize=_BATCH_ROWS)
    return (record for batch in batches for record in batch.to_pylist())


def _read(path: Path, file: Path, columns: Mapping[str, pa.DataType]) -> pa.Table:
    try:
        opened = pq.ParquetFile(file)
    except UnicodeDecodeError:
        raise WorkloadError(f"{file} cannot be read: its names are damaged.") from None
    with opened:
        present = opened.schema_arrow.names
        for name in _NEEDED:
            if name not in present:
                raise WorkloadError(f"{path}: lacks the column {name}; give the requests of a run.")
        table = opened.read(columns=[name for name in (*columns, _TRY) if name in present])
    if _TRY in present:
        table = table.filter(pc.field(_TRY) == 0)
    for name in _NEEDED.keys() & columns.keys():
        if table[name].null_count:
            raise WorkloadError(f"{path}: {name} is missing in some rows; give a whole run.")
    kept = [(name, kind) for name, kind in columns.items() if name in present]
    return table.select([name for name, _ in kept]).cast(pa.schema(kept))


def _row(number: int, record: dict[str, Any]) -> TraceRow:
    return TraceRow(
        number,
        round(record["scheduled_s"] * 1_000_000_000),
        token_count(number, "prompt_tokens", record["prompt_tokens"]),
        token_count(number, "output_tokens", record["output_tokens"]),
        prefix=tuple(_segment(number, segment) for segment in record.get("prefix") or ()),
        kind=record.get("kind") or "",
        cache_salt=record.get("cache_salt") or "",
        branches=_within(number, record, "branches", 1, MAX_BRANCHES) or 1,
        request_id=_within(number, record, "request_id", 0, _MOST),
        client=Client(
            _leave(number, record.get("leave")),
            _within(number, record, "tokens_per_s", 1e-3, 1e6),
        ),
    )


def _within(number: int, record: dict[str, Any], column: str, least: float, most: float) -> Any:
    """The column's number, None where there is none. Raises MalformedLineError."""
    value = record.get(column)
    if value is not None and not least <= value <= most:  # NaN is in no range
        problem = f"is not a number from {least:g} to {most:,.12g}"
        raise MalformedLineError(number, column, value, problem)
    return value


def _leave(number: int, leave: dict[str, Any] | None) -> Leave | None:
    if leave is None:
        return None
    if not leave["kind"]:
        raise MalformedLineError(number, "leave", leave, "does not say how a client left")
    _within(number, leave, "after_s", 0, MAX_DURATION_S)
    _within(number, leave, "after_tokens", 1, MAX_TOKENS)
    return Leave(**leave)


def _segment(number: int, segment: dict[str, Any] | None) -> Segment:
    source = _SOURCES.get(segment["source"]) if segment else None
    if segment is None or source is None or segment["id"] is None or segment["id"] < 0:
        raise MalformedLineError(number, "prefix", segment, "is not a segment of a prompt")
    return Segment(source, segment["id"], token_count(number, "prefix", segment["tokens"]))
