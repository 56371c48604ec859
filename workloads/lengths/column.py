"""Lengths from a column of a file: the empirical distribution."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from workloads.base import WorkloadError
from workloads.formats.base import Line, MalformedLineError, token_count, whole
from workloads.formats.json_lines import checked_object
from workloads.formats.opening import first_line, numbered_lines, reading
from workloads.lengths.base import check_bounds
from workloads.settings import MAX_TOKENS, refusal, text
from workloads.trace_file import find_trace

_PARQUET_MAGIC = b"PAR1"
_COLUMN = "column of column lengths"


class ColumnLengths:
    """One column of a file, its rows drawn with replacement, all alike likely; a length outside
    [min_tokens, max_tokens] becomes the nearest bound.

    `path` names a CSV file with a header, a file of JSON objects, one a line, or a Parquet file,
    told by how it starts; the first two may be compressed by gzip or zstd. Values are whole
    numbers of at least 1, floats such as 7564.0 among them.

    Reads the file once, when made, and keeps 8 bytes a row; what is drawn does not depend on the
    rows' order. Raises WorkloadError that names file, line, column and value, of a Parquet file
    the row's number as its line.
    """

    def __init__(
        self, *, path: str, column: str, min_tokens: int = 1, max_tokens: int | None = None
    ) -> None:
        most = MAX_TOKENS if max_tokens is None else max_tokens
        bounds = check_bounds("column lengths", min_tokens, most)
        fix = "give the name of a column of numbers, such as ContextTokens"
        name = text(_COLUMN, column, "a column's name", fix)
        where = text("path of column lengths", path, "a path", "give a CSV, JSONL or Parquet file")
        self.path = find_trace("path of column lengths", where)
        with reading(self.path):
            values = np.fromiter(_read(self.path, name), dtype=np.int64)
        if not len(values):
            raise WorkloadError(f"{self.path}: the file has no rows; give one that has lengths.")
        self.values = np.sort(np.clip(values, *bounds))
        self.min_tokens, self.max_tokens = int(self.values[0]), int(self.values[-1])
        self.mean_tokens = float(self.values.mean())

    def share_above(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        rows = len(self.values)
        return (rows - np.searchsorted(self.values, tokens, side="right")) / rows

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        return self.values[rng.integers(len(self.values), size=size)]


def _read(path: Path, column: str) -> Iterator[int]:
    """The column's values in the file's order, read as it goes. Raises WorkloadError,
    MalformedLineError and OSError."""
    with path.open("rb") as file:
        is_parquet = file.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC
    if is_parquet:
        return _parquet(path, column)
    return _jsonl(path, column) if first_line(path)[0] == "{" else _csv(path, column)


def _csv(path: Path, column: str) -> Iterator[int]:
    last: Line = (1, "")

    def lines() -> Iterator[str]:
        nonlocal last
        for last in numbered_lines(path):
            yield last[1]

    rows = csv.reader(lines(), strict=True)  # a quoted value may go over several lines
    try:
        names = [name.strip() for name in next(rows)]
        at = _position(path, column, names)
        for row in rows:
            number, line = last
            if len(row) != len(names):
                problem = f"has {len(row)} values; the header has {len(names)}"
                raise MalformedLineError(number, None, line, problem)
            yield token_count(number, column, whole(row[at].strip()))
    except csv.Error as error:
        number, line = last
        raise MalformedLineError(number, None, line, f"is not CSV ({error})") from None


def _jsonl(path: Path, column: str) -> Iterator[int]:
    for number, line in numbered_lines(path):
        record = checked_object(number, line)
        if column not in record:
            problem = f"has no {column}; it has {', '.join(record) or 'nothing'}"
            raise MalformedLineError(number, None, line, problem)
        yield token_count(number, column, whole(record[column]))


def _parquet(path: Path, column: str) -> Iterator[int]:
    try:
        with pq.ParquetFile(path) as file:
            _position(path, column, file.schema_arrow.names)
            batches = file.iter_batches(columns=[column])
            values = chain.from_iterable(batch.column(0).to_pylist() for batch in batches)
            for number, value in enumerate(values, 1):
                yield token_count(number, column, whole(value))
    except pa.ArrowException as error:
        raise WorkloadError(f"{path} is not a whole Parquet file: {error}.") from None


def _position(path: Path, column: str, names: list[str]) -> int:
    if column not in names:
        allowed = f"one of the columns of {path.name}: {', '.join(names)}"
        raise refusal(_COLUMN, column, allowed, "name one of them")
    return names.index(column)
