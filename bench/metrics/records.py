"""What a run writes as it goes: rows in Parquet part files, incidents as JSON lines.

A part is written whole and renamed into place, so that a killed run leaves readable parts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from workloads.formats.own_run import LEAVE, SEGMENT

REQUESTS = pa.schema(
    [
        ("request_id", pa.int64()),
        ("kind", pa.string()),
        ("prompt_tokens", pa.int64()),
        ("output_tokens", pa.int64()),
        ("generated_tokens", pa.int64()),
        ("branches", pa.int64()),
        ("scheduled_s", pa.float64()),
        ("sent_s", pa.float64()),
        ("admitted_s", pa.float64()),
        ("first_token_s", pa.float64()),
        ("last_token_s", pa.float64()),
        ("end_s", pa.float64()),
        ("status", pa.string()),
        ("cause", pa.string()),
        ("preemptions", pa.int64()),
        ("cached_tokens", pa.int64()),
        ("left", pa.string()),  # how its client left, of workloads.clients.LEAVING
        ("slow_reader", pa.bool_()),
    ]
)

REPLAYED = pa.schema(
    [
        ("cache_salt", pa.string()),
        ("prefix", pa.list_(SEGMENT)),  # of the prompt: what it shares, workloads.base.Segment
        ("leave", LEAVE),  # when its client would leave, workloads.base.Leave
        ("tokens_per_s", pa.float64()),  # at which its client reads, null for as fast as it comes
    ]
)
"""What else a request was, for a run that sends it again (workloads/formats/own_run.py)."""

TIMELINE = pa.schema(
    [
        ("time_s", pa.float64()),
        ("running", pa.int64()),
        ("waiting", pa.int64()),
        ("token_states_bytes", pa.int64()),
        ("shared_bytes", pa.int64()),
        ("unfilled_bytes", pa.int64()),
        ("rounding_bytes", pa.int64()),
        ("cached_bytes", pa.int64()),
        ("free_bytes", pa.int64()),
        ("kv_budget_bytes", pa.int64()),
        ("memory_bound", pa.bool_()),
        ("allocated_bytes", pa.int64()),
        ("requested_bytes", pa.int64()),
        ("reserved_bytes", pa.int64()),
        ("active_bytes", pa.int64()),
        ("inactive_split_bytes", pa.int64()),
        ("segments", pa.int64()),
        ("largest_free_bytes", pa.int64()),
        ("external_fragmentation", pa.float64()),
        ("num_alloc_retries", pa.int64()),
        ("num_ooms", pa.int64()),
        ("driver_calls", pa.int64()),
        ("preemptions", pa.int64()),
        ("completed", pa.int64()),
        ("output_tokens", pa.int64()),
        ("steps_measured_s", pa.float64()),
        ("steps_modelled_s", pa.float64()),
    ]
)

UNFILLED = pa.schema(
    [
        ("time_s", pa.float64()),
        ("reservation_bytes", pa.int64()),
        ("internal_bytes", pa.int64()),
        ("undetermined_bytes", pa.int64()),
    ]
)

SOURCES = pa.schema(
    [
        ("time_s", pa.float64()),
        ("source", pa.string()),
        ("held_bytes", pa.int64()),
        ("allocations", pa.int64()),
        ("refused", pa.int64()),
    ]
)

FLUSH_ROWS = 20_000


class PartWriter:
    """Rows of one table, written in numbered parts."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._folder = folder
        self._schema = schema
        self._rows: list[dict[str, Any]] = []
        self._parts = 0
        folder.mkdir(parents=True)

    def add(self, row: dict[str, Any]) -> None:
        """Keeps a row; writes a part when many came together."""
        self._rows.append(row)
        if len(self._rows) >= FLUSH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Writes what is kept as a part."""
        if self._rows:
            self._write()

    def close(self) -> None:
        """Writes the rest; a table that never had a row gets an empty part."""
        if self._rows or not self._parts:
            self._write()

    def _write(self) -> None:
        path = self._folder / f"part-{self._parts:05d}.parquet"
        partial = path.with_suffix(".partial")
        pq.write_table(pa.Table.from_pylist(self._rows, schema=self._schema), partial)
        os.replace(partial, path)
        self._parts += 1
        self._rows = []


class LineWriter:
    """JSON lines, appended and flushed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def add(self, records: Iterable[dict[str, Any]]) -> None:
        """Appends records."""
        self._file.writelines(json.dumps(record) + "\n" for record in records)
        self._file.flush()

    def close(self) -> None:
        """Ends the file."""
        self._file.close()


def write_json(path: Path, content: Any) -> None:
    """Writes a JSON file whole, or not at all. NaN is an error: undefined is null."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(partial, path)
