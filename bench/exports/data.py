"""The comparison and every run as rows of data: CSV and Parquet."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from bench.report import quantities as q
from bench.report.comparison import comparison_table
from bench.report.groups import by_workload
from bench.report.page import Contents, replace_file
from bench.report.results import Run


def write_csv(shown: Contents, folder: Path) -> list[Path]:
    """comparison.csv and runs.csv."""
    return _write(shown, folder, "csv", _csv)


def write_parquet(shown: Contents, folder: Path) -> list[Path]:
    """comparison.parquet and runs.parquet: the same columns, with types."""
    return _write(shown, folder, "parquet", _parquet)


def comparison_frame(rows: Sequence[Run]) -> pd.DataFrame:
    """One row a setting: each quantity's mean over repeats, in `<name>_low` and `<name>_high` the
    ends of its 95 % interval (missing below five repeats), and how many `repeats` there are."""
    ordered, means = in_order(rows), comparison_table(rows)
    columns: dict[str, object] = {}
    for name, mean in means.items():
        columns[str(name)] = mean
        if name in _BY_COLUMN:
            found = [_BY_COLUMN[str(name)].estimate(run) for run in ordered]
            for end in ("low", "high"):
                values = [getattr(each, end) if each else None for each in found]
                columns[f"{name}_{end}"] = pd.Series(values, dtype="float64")
    columns["repeats"] = [len(run.each) for run in ordered]
    return pd.DataFrame(columns)


def runs_frame(each: Sequence[Run]) -> pd.DataFrame:
    """One row a run, repeats and variants apart, with its seed and the factors of cost constants
    that were varied."""
    ordered, frame = in_order(each), comparison_table(each)
    own = pd.DataFrame(
        {
            "seed": pd.Series([_seed(run) for run in ordered], dtype="Int64"),
            "cost_factors": [_factors(run) for run in ordered],
        }
    )
    return pd.concat([own, frame], axis=1)


def in_order(runs: Sequence[Run]) -> list[Run]:
    """As tables have them: by workload, then by backend."""
    return [run for group in by_workload(runs).values() for run in group]


_BY_COLUMN = {quantity.column: quantity for quantity in q.ALL}


def _seed(run: Run) -> int | None:
    return run.seeds[0] if isinstance(run.seeds[0], int) else None


def _factors(run: Run) -> str | None:
    said = ",".join(f"{name}={factor}" for name, factor in run.cost_factors.items())
    return said or None


def _write(
    shown: Contents, folder: Path, ending: str, form: Callable[[pd.DataFrame], bytes]
) -> list[Path]:
    frames = {"comparison": comparison_frame(shown.rows), "runs": runs_frame(shown.each)}
    paths = {folder / f"{name}.{ending}": frame for name, frame in frames.items()}
    for path, frame in paths.items():
        replace_file(path, form(frame))
    return list(paths)


def _csv(frame: pd.DataFrame) -> bytes:
    return frame.to_csv(index=False, lineterminator="\n").encode()


def _parquet(frame: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue()
