"""Reads a run's Parquet part files and thins them for plotting."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

TIME_COLUMNS = frozenset({
    "time_s", "scheduled_s", "sent_s", "admitted_s", "first_token_s", "last_token_s", "end_s",
})  # fmt: skip
"""Moments on a run's clock."""
TEXT_COLUMNS = frozenset({"request_id", "kind", "status", "cause"})
PART_NUMBER = re.compile(r"part-(\d+)\.parquet$")


@dataclass(frozen=True)
class PartFiles:
    """The readable part files of one kind, in order. Nothing is kept in memory.

    `starts_s` has parts whose times (TIME_COLUMNS) are from such a time on.
    """

    kind: str
    paths: tuple[Path, ...]
    starts_s: Mapping[Path, float] = field(default_factory=dict)

    def read(self, columns: Sequence[str], notes: list[str]) -> pd.DataFrame:
        """These columns of all parts as one frame; numbers are float64, what is absent is NaN.

        A part whose data turns out to be damaged is left out and noted.
        """
        schema = pa.schema([(name, _type(name)) for name in columns])
        tables = [schema.empty_table()]
        for path in self.paths:
            try:
                tables.append(_read_part(path, schema, self.starts_s.get(path, 0.0)))
            except (pa.ArrowException, OSError):
                _note(notes, f"{self.kind}/{path.name} is damaged and was left out")
        frame: pd.DataFrame = pa.concat_tables(tables).to_pandas()
        return frame


def in_a_row(kind: str, parts: Sequence[tuple[PartFiles, float]]) -> PartFiles:
    """Parts of several runs as those of one, each run's times from such a time on."""
    starts_s = {path: start_s for each, start_s in parts for path in each.paths}
    return PartFiles(kind, tuple(starts_s), starts_s)


def find_parts(run: Path, kind: str, notes: list[str]) -> PartFiles:
    """Parts of `kind` whose footer can be read; the rest, and gaps in the numbering, are noted."""
    numbered = {
        int(found.group(1)): path
        for path in sorted((run / kind).glob("part-*.parquet"))
        if (found := PART_NUMBER.search(path.name))
    }
    if not numbered:
        notes.append(f"{kind}: no part files")
        return PartFiles(kind, ())
    missing = sorted(set(range(min(numbered), max(numbered))) - set(numbered))
    if missing:
        notes.append(f"{kind}: part(s) {', '.join(map(str, missing))} missing")
    readable = [path for _, path in sorted(numbered.items()) if _has_footer(path)]
    for path in sorted(set(numbered.values()) - set(readable)):
        notes.append(f"{kind}/{path.name} is cut short and was left out")
    return PartFiles(kind, tuple(readable))


def thin(frame: pd.DataFrame, time: str = "time_s", points: int = 600) -> pd.DataFrame:
    """`frame` ordered by time, as means over at most `points` equal spans of time.

    Means keep what is linear in the columns: parts still add up to their whole. A frame that is
    short enough already comes back as it is.
    """
    ordered = frame.dropna(subset=[time]).sort_values(time, kind="stable", ignore_index=True)
    if len(ordered) <= points:
        return ordered
    start, end = ordered[time].iloc[0], ordered[time].iloc[-1]
    if end <= start:
        return ordered.iloc[[-1]]
    span = np.minimum((ordered[time] - start) / (end - start) * points, points - 1).astype(int)
    return ordered.groupby(span.rename("span")).mean().reset_index(drop=True)


def _has_footer(path: Path) -> bool:
    try:
        pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return False
    return True


def _read_part(path: Path, schema: pa.Schema, start_s: float) -> pa.Table:
    # One file, not a dataset: a folder named `backend=paged` must not become a column.
    with pq.ParquetFile(path) as file:
        present = [name for name in schema.names if name in file.schema_arrow.names]
        # Without threads: parts are small, and starting them costs more than reading.
        table = file.read(columns=present, use_threads=False)
    columns = []
    for name in schema.names:
        values = table[name] if name in present else pa.nulls(table.num_rows)
        column = _typed(values, _type(name))
        moves = start_s and name in TIME_COLUMNS
        columns.append(pc.add(column, start_s) if moves else column)
    return pa.table(columns, schema=schema)


def _type(name: str) -> pa.DataType:
    return pa.string() if name in TEXT_COLUMNS else pa.float64()


def _typed(values: pa.ChunkedArray | pa.Array, wanted: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """`values` as numbers or text; nothing where they are neither."""
    try:
        return values.cast(wanted, safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(values), wanted)


def _note(notes: list[str], text: str) -> None:
    if text not in notes:
        notes.append(text)
