"""Whole runs, from overrides to files, for the tests of this folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

from bench.cells import Cell, cell_job
from bench.experiment import compose_cells
from tests.virtual_gpu import _launcher


class Run(NamedTuple):
    """What a run left."""

    summary: dict[str, Any]
    requests: pd.DataFrame
    timeline: pd.DataFrame
    unfilled: pd.DataFrame


def composed(out: Path, *overrides: str) -> Cell:
    """One experiment with all of its settings, for the virtual GPU unless they say otherwise."""
    (cell,), _ = compose_cells(["device=virtual", *overrides, f"out={out}"], ["fragbench", "run"])
    return cell


def run(out: Path, *overrides: str) -> Run:
    """One experiment, its files in `out`."""
    job = cell_job(composed(out, *overrides), None)
    finished = _launcher().run(job)
    if finished.status != "ok":
        pytest.fail(f"{overrides}: {finished.traceback or finished.cause}", pytrace=False)
    return read(out)


def read(out: Path) -> Run:
    """The files of a run that ended."""
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    tables = (pd.read_parquet(out / name) for name in ("requests", "timeline", "unfilled"))
    return Run(summary, *tables)
