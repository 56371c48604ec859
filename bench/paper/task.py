"""What a figure is made with: its runs, made as `fragbench matrix` makes them."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.cells import INTERRUPTED, Cell, check_cells, run_cells
from bench.errors import SettingError
from bench.experiment import compose_cells
from bench.paper.lengths import has_spread, mean_after_clip, mean_before_clip
from bench.paper.setups import SHAREGPT, Dataset
from bench.report.results import Run, load_runs

RUNS = "runs"
QUICK_S = 120
QUICK_SHARE = 4
BACKLOG_RPS = 10_000.0
"""Faster than any system serves: all requests of a backlog are there within a second or so."""
CV_FACTOR = "factor on the cv of lengths"
DEFAULTS = ("device=virtual",)


class Stopped(Exception):  # noqa: N818 - a wish, not an error
    """The user stopped the runs of a figure."""


@dataclass(frozen=True, slots=True)
class Point:
    """One run of a figure: the name of its folder and Hydra's overrides for it.

    `rate_rps` and `spread` change what these compose: the workload's mean rate, and the factor on
    the cv of its lengths, whose means stay. Points that differ in nothing else are composed once.
    """

    name: str
    overrides: tuple[str, ...]
    rate_rps: float | None = None
    spread: float = 1.0


@dataclass(slots=True)
class Task:
    """What was asked for, and where results go. `quick` shortens every run, `path` is a file of
    lengths or a trace, `overrides` are the user's own and come last."""

    folder: Path
    console: Console
    command: list[str]
    overrides: list[str] = field(default_factory=list)
    path: str | None = None
    quick: bool = False
    exit_code: int = 0
    _composed: dict[tuple[str, ...], Cell] = field(default_factory=dict)

    def traffic_s(self, seconds: float) -> str:
        """The override for a workload of so many seconds; of QUICK_S where runs are to be short."""
        return f"workload.duration_s={min(seconds, QUICK_S) if self.quick else seconds}"

    def backlog(self, requests: int) -> tuple[str, ...]:
        """Overrides for so many requests, at BACKLOG_RPS; fewer where runs are to be short."""
        number = requests // QUICK_SHARE if self.quick else requests
        return (f"workload.num_requests={number}", "workload.duration_s=null")

    def dataset(self, dataset: Dataset) -> tuple[str, ...]:
        """Overrides for a dataset's requests. A user's file stands in for ShareGPT."""
        overrides = (f"workload={dataset.workload}",)
        if self.path is None or dataset is not SHAREGPT:
            return overrides
        return (*overrides, *dataset.lengths_from(self.path))

    def spreads(self, factors: tuple[float, ...]) -> tuple[float, ...]:
        """Factors on the lengths' cv; the first alone for lengths of a file or short runs."""
        return factors[:1] if self.quick or self.path else factors

    def cells(self, points: Sequence[Point]) -> list[Cell]:
        """The checked runs of these points. Raises SettingError."""
        self.refuse_settings(_varied(points))
        cells = [self._cell(point) for point in points]
        check_cells(cells, self.folder)
        return cells

    def refuse_settings(self, keys: Collection[str]) -> None:
        """Raises SettingError where the user gave one of these: his values come last, and what the
        figure says of its own would not be so."""
        for argument in self.overrides:
            if argument.lstrip("+~").partition("=")[0] in keys:
                raise SettingError(f"{argument} is what this figure sets itself: leave it out.")

    def run(self, points: Sequence[Point]) -> dict[str, Run]:
        """Makes all runs, several at a time, and reads their files; by the names of their points.

        Raises SettingError, or Stopped where the user ended it.
        """
        cells = self.cells(points)
        self.exit_code = run_cells(cells, self.console, self.folder, show=False)
        if self.exit_code == INTERRUPTED:
            raise Stopped
        return {run.folder: run for run in load_runs(self.folder / RUNS)}

    def _cell(self, point: Point) -> Cell:
        cell = copy.deepcopy(self._compose(point.overrides))
        cell.name = cell.config["name"] = point.name
        cell.out = self.folder / RUNS / point.name
        workload = cell.config["workload"]
        if point.rate_rps is not None:
            workload["rate_rps"] = point.rate_rps
        if point.spread != 1:
            _spread(workload, point.spread)
        return cell

    def _compose(self, overrides: tuple[str, ...]) -> Cell:
        if overrides not in self._composed:
            asked = [*DEFAULTS, *overrides, *self.overrides, f"out={self.folder}"]
            (self._composed[overrides],), _ = compose_cells(asked, self.command)
        return self._composed[overrides]


def _varied(points: Sequence[Point]) -> set[str]:
    """Settings that points differ in."""
    given = [dict(each.partition("=")[::2] for each in point.overrides) for point in points]
    keys = {key for settings in given for key in settings}
    return {key for key in keys if len({settings.get(key) for settings in given}) > 1}


def _spread(workload: Mapping[str, Any], factor: float) -> None:
    """Multiplies the cv of a workload's lengths; their means after the clip stay."""
    for kind in workload["kinds"].values():
        for lengths in filter(has_spread, kind.values()):
            mean_tokens = mean_after_clip(lengths)
            lengths["cv"] *= factor
            lengths["mean_tokens"] = mean_before_clip(lengths, mean_tokens)
