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
        ("live_tokens", pa.int64()),
        ("blocks_used", pa.int64()),  # blocks: null where there are none
        ("blocks_free", pa.int64()),
        ("blocks_cached", pa.int64()),
        ("step_sequences", pa.int64()),  # of the step that the row is of
        ("step_tokens", pa.int64()),
        ("token_budget", pa.int64()),
        ("allocation_failures", pa.int64()),  # so far, each refusal of a waiting episode
        ("worker_restarts", pa.int64()),  # before this process
        # of requests that completed since the row before, null if none did
        ("mean_prompt_tokens", pa.float64()),
        ("max_prompt_tokens", pa.float64()),
        ("mean_generated_tokens", pa.float64()),
        ("max_generated_tokens", pa.float64()),
        ("mean_ttft_s", pa.float64()),
        ("max_ttft_s", pa.float64()),
        ("mean_e2e_s", pa.float64()),
        ("max_e2e_s", pa.float64()),
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
    """Rows of one table, written in numbered parts.

    Each flush writes a new part or, where parts are to have `part_rows`, the last part anew with
    more rows: there are not so many files then.
    """

    def __init__(self, folder: Path, schema: pa.Schema, part_rows: int = 1) -> None:
        self._folder = folder
        self._schema = schema
        self._part_rows = part_rows
        self._part = schema.empty_table()
        self._rows: list[dict[str, Any]] = []
        self._parts = 0
        folder.mkdir(parents=True)

    @property
    def kept(self) -> int:
        """Rows that are not written yet."""
        return len(self._rows)

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
        if self._rows or not (self._parts or len(self._part)):
            self._write()

    def _write(self) -> None:
        path = self._folder / f"part-{self._parts:05d}.parquet"
        partial = path.with_suffix(".partial")
        table = pa.Table.from_pylist(self._rows, schema=self._schema)
        self._part = pa.concat_tables([self._part, table])
        pq.write_table(self._part, partial)
        os.replace(partial, path)
        self._rows = []
        if len(self._part) >= self._part_rows or not len(self._part):
            self._parts += 1
            self._part = self._schema.empty_table()


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
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a file whole, or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
