"""What the processes of a replay pass on: files of tables, which hold no objects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.snapshots.steps import Steps
from bench.snapshots.trace import History


class Figures(NamedTuple):
    """Bytes after each step, and before the first."""

    allocated: NDArray[np.int64]
    reserved: NDArray[np.int64]


class Replayed(NamedTuple):
    """What an allocator did in a replay. `times` has the step of each row of the history."""

    history: History
    times: NDArray[np.float64]
    figures: Figures


def save(path: Path, history: History, steps: Steps) -> None:
    """Writes a recorded history and its program's steps."""
    _save(path, _tables(history) | {"steps": steps.table, "step_of_row": steps.step_of_row})


def load(path: Path) -> tuple[History, Steps]:
    """What save() wrote."""
    with np.load(path, allow_pickle=False) as file:
        return _history(file), Steps(file["steps"], file["step_of_row"])


def save_replay(path: Path, replayed: Replayed) -> None:
    """Writes what became of them under some settings."""
    figures = replayed.figures._asdict()
    _save(path, _tables(replayed.history) | {"times": replayed.times} | figures)


def load_replay(path: Path) -> Replayed:
    """What save_replay() wrote."""
    with np.load(path, allow_pickle=False) as file:
        figures = Figures(file["allocated"], file["reserved"])
        return Replayed(_history(file), file["times"], figures)


def _save(path: Path, tables: Mapping[str, Any]) -> None:
    np.savez(path, **tables)


def _tables(history: History) -> dict[str, Any]:
    return {
        "rows": history.rows,
        "blocks": history.blocks,
        "segments": history.segments,
        "labels": np.array(history.labels),
    }


def _history(file: np.lib.npyio.NpzFile) -> History:
    labels = tuple(file["labels"].tolist())
    return History(file["rows"], file["blocks"], file["segments"], labels)
