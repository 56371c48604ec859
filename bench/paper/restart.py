"""Does a periodic restart help against accumulation, and against what else? No figure of the
paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure as Drawing

from bench.paper.drawing import column_figure, of
from bench.paper.figure import Row
from bench.paper.jobs import run_points
from bench.paper.over_time import Curve, draw_curves, mean_over_time, timeline
from bench.paper.reading import number
from bench.paper.task import RUNS, Point, Task
from bench.report.results import Run, load_runs

JOB = "bench.paper.restart_job:run"
TRAFFIC_S, QUICK_S = 7200.0, 600.0
TRAFFIC = ("model=llama3_8b", "gpu=a100_40gb", "workload=mixed", "workload.rate_rps=0.4",
           "sample_interval_s=5")  # fmt: skip
GROW = ("backend.reserve=grow", "backend.layout=sequence")


class Case(NamedTuple):
    """How often a fresh process takes over, and on which backend."""

    label: str
    restarts: int
    backend: str
    colour: str


CASES = (
    Case("no restart", 0, "contiguous", "#D55E00"),
    Case("a restart every hour", 1, "contiguous", "#E69F00"),
    Case("a restart every quarter of an hour", 7, "contiguous", "#009E73"),
    Case("no restart, expandable segments", 0, "contiguous_expandable", "#0072B2"),
)
GAP = "reserved - allocated"


@dataclass(frozen=True, slots=True)
class Life:
    """What one process serves: requests from `start_s` up to `stop_s`."""

    name: str
    start_s: float
    stop_s: float


class Restart:
    """The same traffic, served by one process, or by one fresh process after another."""

    name = "restart"
    title = "periodic restart against accumulation: reserved - allocated over two hours"
    files = None

    def rows(self, task: Task) -> list[Row]:
        task.refuse_settings({"workload.duration_s", "workload.num_requests"})
        traffic_s = QUICK_S if task.quick else TRAFFIC_S
        lives = {case: _lives(case, traffic_s) for case in CASES}
        points = [
            (Point(life.name, (*TRAFFIC, f"workload.duration_s={traffic_s}",
                               f"backend={case.backend}", *GROW)),
             {"start_s": life.start_s, "stop_s": life.stop_s})
            for case, own in lives.items()
            for life in own
        ]  # fmt: skip
        run_points(JOB, points, task)
        runs = {run.folder: run for run in load_runs(task.folder / RUNS)}
        return [row for case, own in lives.items() for row in _rows(case, own, runs)]

    def draw(self, rows: Sequence[Row]) -> Drawing:
        figure = column_figure(4.2)
        grid = figure.subplots(2, 2, sharex=True, sharey=True)
        for axes, case in zip(grid.flat, CASES, strict=True):
            mine = of(rows, system=case.label)
            draw_curves(axes, mine, {case.label: case.colour})
            (mean,) = [each.ours or 0 for each in mine if each.quantity == _said("mean over time")]
            axes.set_title(f"{case.label}:\n{mean:.3g} GiB on average", fontsize=9)
            axes.label_outer()
        for axes in grid[:, 0]:
            axes.set_ylabel(f"{GAP}, GiB", fontsize=8)
        return figure


def _lives(case: Case, traffic_s: float) -> list[Life]:
    each_s = traffic_s / (case.restarts + 1)
    return [
        Life(f"{case.backend},{case.restarts}_restarts,{n}", n * each_s, (n + 1) * each_s)
        for n in range(case.restarts + 1)
    ]


def _rows(case: Case, lives: Sequence[Life], runs: Mapping[str, Run]) -> list[Row]:
    """Of one case: what is reserved beyond what is allocated, and what the restarts took."""
    own = [runs[life.name] for life in lives]
    samples = pd.concat(
        [timeline(run).assign(start_s=life.start_s) for run, life in zip(own, lives, strict=True)]
    )
    times_s = samples["time_s"] + samples["start_s"]
    values = (
        ("mean over time", "GiB", mean_over_time(samples, "gap")),
        ("peak", "GiB", float(samples["gap"].max())),
        ("reserved, peak", "GiB", float(samples["reserved"].max())),
        (
            "retries after a refused allocation",
            "retries",
            _sum(own, "allocator", "num_alloc_retries"),
        ),
        ("time in driver calls", "s", _sum(own, "driver_s")),
        ("requests still served when their process was to end, at most", "s", _drain_s(own, lives)),
    )
    note = f"virtual GPU, modelled time; {case.restarts} restarts; a start's own time is not in it"
    return [
        Curve(
            panel="", system=case.label, quantity=f"{GAP}, at the end", unit="GiB", note=note,
            ours=float(samples["gap"].iloc[-1]), times_s=tuple(times_s),
            values=tuple(samples["gap"]),
        ),
        *(
            Row(panel="", system=case.label, quantity=_said(quantity), unit=unit, ours=value,
                note=note)
            for quantity, unit, value in values
        ),
    ]  # fmt: skip


def _said(quantity: str) -> str:
    return f"{GAP}, {quantity}" if quantity in ("mean over time", "peak") else quantity


def _sum(runs: Sequence[Run], *keys: str) -> float | None:
    values = [number(run, *keys) for run in runs]
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _drain_s(runs: Sequence[Run], lives: Sequence[Life]) -> float | None:
    """How long a process still served after the next one had taken over, at most."""
    if len(lives) == 1:
        return None
    ends_s = [number(run, "simulated_s") for run in runs[:-1]]
    over = [
        end_s - (life.stop_s - life.start_s)
        for end_s, life in zip(ends_s, lives, strict=False)
        if end_s is not None
    ]
    return max(0.0, *over) if over else None
