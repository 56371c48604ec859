"""A table over time that never has more than so many rows: when it is full, neighbours merge.

Every row stands for the same number of samples, 1 at first, twice as many after each merge. Means
are weighted by time: a sample lasts until the next one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

GAP = "gap_bytes"
"""What the extremes of reserved - allocated are called after."""
EXTREMES = (GAP, "reserved_bytes", "allocated_bytes", "free_bytes", "waiting")
COUNTERS = frozenset({
    "num_alloc_retries", "num_ooms", "driver_calls", "preemptions", "completed", "output_tokens",
    "steps_measured_s", "steps_modelled_s", "allocation_failures", "worker_restarts",
    "allocations", "refused",
})  # fmt: skip
"""Counts so far: a row has those of its last sample."""
ENDS = ("min", "max")
TIME = "time_s"
LEAST_S = 1e-9

Floats = NDArray[np.float64]


class ThinnedWriter:
    """A timeline as one Parquet part of at most `most` rows, written anew at each flush.

    A row begins at its first sample, has the mean of every quantity, the last value of every count
    (COUNTERS) and the largest of what is called `max_`; with `extremes` also the smallest and the
    largest of EXTREMES, in columns `min_` and `max_`. An undefined value has no weight. A table
    that `follows` another one, whose samples come later than the other's, has rows that stand for
    the same samples as the other's, and leaves out its last row until all of those have come.
    """

    def __init__(
        self,
        folder: Path,
        schema: pa.Schema,
        most: int,
        *,
        extremes: bool = False,
        follows: ThinnedWriter | None = None,
    ) -> None:
        assert most >= 2
        self.stride = 1
        self._pending: Floats | None = None
        self._pending_s = 0.0
        self._path = folder / "part-00000.parquet"
        self._follows = follows
        self._names = [name for name in schema.names if name != TIME]
        self._extremes = [f"{end}_{name}" for name in EXTREMES for end in ENDS] if extremes else []
        columns = self._names + self._extremes
        self._schema = _schema(schema, columns)
        self._are_counts = np.array([name in COUNTERS for name in columns])
        self._are_least = np.array([name.startswith("min_") for name in columns])
        self._are_most = np.array([name.startswith("max_") for name in columns])
        rows = most - most % 2
        self._times_s = np.zeros(rows)
        self._values, self._weights = np.zeros((rows, len(columns))), np.zeros((rows, len(columns)))
        self._rows = self._samples = 0
        folder.mkdir(parents=True)

    def add(self, row: Mapping[str, Any]) -> None:
        """Takes in the next sample."""
        time_s = float(row[TIME])
        if self._pending is not None:  # it lasted until now
            self._put(self._pending, max(time_s - self._pending_s, LEAST_S))
        self._make_room()
        if self._samples % self.stride == 0:
            self._times_s[self._rows] = time_s
            self._values[self._rows] = self._weights[self._rows] = 0.0
            self._rows += 1
        self._pending, self._pending_s = self._sample(row), time_s
        self._samples += 1

    def _sample(self, row: Mapping[str, Any]) -> Floats:
        values = [row.get(name) for name in self._names]
        if self._extremes:
            reserved, allocated = row.get("reserved_bytes"), row.get("allocated_bytes")
            gap = None if reserved is None or allocated is None else reserved - allocated
            known = {**row, GAP: gap}
            values += [known.get(name) for name in EXTREMES for _ in ENDS]
        return np.array([np.nan if value is None else value for value in values], dtype=float)

    def _put(self, sample: Floats, seconds: float) -> None:
        weights = np.where(np.isnan(sample), 0.0, seconds)
        row = self._rows - 1
        self._values[row], self._weights[row] = self._merged(
            self._values[row], self._weights[row], np.nan_to_num(sample), weights
        )

    def _merged(
        self, first: Floats, first_s: Floats, second: Floats, second_s: Floats
    ) -> tuple[Floats, Floats]:
        """Two neighbours as one, of one shape (..., columns); what has no weight has no say."""
        seconds = first_s + second_s
        value = (first * first_s + second * second_s) / np.maximum(seconds, LEAST_S)
        value = np.where(first_s > 0, np.where(second_s > 0, value, first), second)
        both = (first_s > 0) & (second_s > 0)
        value = np.where(both & self._are_counts, second, value)
        value = np.where(both & self._are_least, np.minimum(first, second), value)
        value = np.where(both & self._are_most, np.maximum(first, second), value)
        return value, seconds

    def _make_room(self) -> None:
        self._keep_up()
        if self._samples % self.stride == 0 and self._rows == len(self._times_s):
            self._halve()

    def _keep_up(self) -> None:
        while self._follows is not None and self.stride < self._follows.stride:
            self._halve()

    def _halve(self) -> None:
        """Merges rows two by two; an odd last one stays, as half a row."""
        pairs = self._rows // 2
        even, odd = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
        values, weights = self._merged(
            self._values[even], self._weights[even], self._values[odd], self._weights[odd]
        )
        kept = slice(0, self._rows, 2)
        self._rows -= pairs
        for column, merged in ((self._values, values), (self._weights, weights)):
            column[: self._rows] = np.concatenate([merged, column[kept][pairs:]])
        self._times_s[: self._rows] = self._times_s[kept].copy()
        self.stride *= 2

    def flush(self) -> None:
        """Writes the rows so far."""
        self._keep_up()
        whole = self._follows is None
        rows = self._rows if whole else self._samples // self.stride
        if rows:
            self._write(rows)

    def close(self) -> None:
        """Writes all rows, or a part of none."""
        self._keep_up()
        self._write(self._rows)

    def _write(self, rows: int) -> None:
        kept = self._values[self._rows - 1].copy(), self._weights[self._rows - 1].copy()
        if self._pending is not None:  # nobody knows yet how long it will last
            self._put(self._pending, LEAST_S)
        partial = self._path.with_suffix(".partial")
        pq.write_table(self._table(rows), partial)
        os.replace(partial, self._path)
        self._values[self._rows - 1], self._weights[self._rows - 1] = kept

    def _table(self, rows: int) -> pa.Table:
        values = np.where(self._weights[:rows] > 0, self._values[:rows], np.nan)
        arrays = [pa.array(self._times_s[:rows])]
        for number, field in enumerate(list(self._schema)[1:]):
            column = pa.array(values[:, number], from_pandas=True)  # NaN is null
            arrays.append(column.cast(field.type))
        return pa.Table.from_arrays(arrays, schema=self._schema)


def _schema(schema: pa.Schema, columns: list[str]) -> pa.Schema:
    """Counts and extremes as they were, means as floats."""
    kept = {field.name: field.type for field in schema}
    fields = [(TIME, pa.float64())]
    for name in columns:
        counted = name in COUNTERS or name not in kept
        fields.append((name, kept.get(name, pa.int64()) if counted else pa.float64()))
    return pa.schema(fields)
