"""Does reserved - allocated grow over hours? Four ways to hold KV on one trace. No figure of the
paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Drawing

from bench.gpu import Gpu
from bench.metrics.trend import Series, Trend, trend
from bench.packaged import load_gpu
from bench.paper.drawing import column_figure, of
from bench.paper.figure import Row
from bench.paper.reading import row
from bench.paper.task import QUICK_S, Point, Task
from bench.report.palette import backend_colour
from bench.report.results import Run

DEFAULT_TRACE = "azure_llm_2023_conv.csv"
GPU = "a100_40gb"
TRAFFIC = (
    f"gpu={GPU}", "model=llama2_13b", "workload=trace", "workload.repeat=true",
    "timeline_rows=4096",
)  # fmt: skip
TIME_SCALE = 6.6667
"""0.15 of the trace's own 5.53 requests/s."""
SOAK_S = 6 * 3600.0
POINTS = 36
"""Ten minutes each."""
GIB = 1 << 30
GAP, LEAST, MOST, SLOPE, LOW, HIGH = (
    "reserved - allocated", "reserved - allocated, least", "reserved - allocated, most",
    "slope", "slope, low end of its 95 % interval", "slope, high end of its 95 % interval",
)  # fmt: skip
GROW = ("backend.reserve=grow", "backend.layout=sequence")


class Case(NamedTuple):
    """A way to hold KV, and how it is chosen."""

    backend: str
    label: str
    overrides: tuple[str, ...] = ()


CASES = (
    Case("contiguous", "contiguous, growing", GROW),
    Case("contiguous_expandable", "the same, expandable segments", GROW),
    Case("bucketed", "bucketed"),
    Case("paged", "paged"),
)


class Soak:
    """Reserved - allocated over six hours of a conversation trace."""

    name = "soak"
    title = f"reserved - allocated over six hours of {DEFAULT_TRACE}, and whether it grows"
    files = "a trace"

    def rows(self, task: Task) -> list[Row]:
        length_s = QUICK_S * 5 if task.quick else SOAK_S
        runs = task.run([_point(task, case, length_s) for case in CASES])
        gpu = load_gpu(GPU)
        return [
            each
            for case in CASES
            for each in _case_rows(runs.get(case.backend), case, gpu, length_s)
        ]

    def draw(self, rows: Sequence[Row]) -> Drawing:
        figure = column_figure(3.4)
        axes = figure.subplots()
        handles = []
        for case in CASES:
            colour = backend_colour(case.backend)
            mine = of(rows, system=case.label)
            hours = [each.x for each in of(mine, quantity=GAP) if each.x is not None]
            gap, least, most = (_values(mine, name) for name in (GAP, LEAST, MOST))
            handles += axes.plot(hours, gap, color=colour, linewidth=1.6)
            axes.fill_between(hours, least, most, color=colour, alpha=0.1, linewidth=0)
        axes.set_xlabel("time, h (modelled)")
        axes.set_ylabel("reserved - allocated, GiB")
        axes.set_ylim(bottom=0)
        axes.margins(x=0)
        axes.set_title("Lines: means. Bands: from least to most.", fontsize=8, fontweight="normal")
        names = [f"{case.label}: {_said(rows, case)}" for case in CASES]
        figure.legend(handles, names, loc="outside lower center", ncols=2, fontsize=7.5)
        return figure


def _point(task: Task, case: Case, length_s: float) -> Point:
    traffic = (
        *TRAFFIC,
        f"workload.path={task.path or DEFAULT_TRACE}",
        f"workload.time_scale={TIME_SCALE}",
        f"stop_after_s={length_s}",
    )
    return Point(case.backend, (*traffic, f"backend={case.backend}", *case.overrides))


def _case_rows(run: Run | None, case: Case, gpu: Gpu, length_s: float) -> list[Row]:
    found = None if run is None else _timeline(run)
    if run is None or found is None or found.empty:
        return [_row(run, None, case, GAP, "GiB")]
    means = _spans(found, length_s)
    rows = [
        _row(run, float(value) / GIB, case, quantity, "GiB", x=float(hour))
        for quantity, column in ((GAP, "gap"), (LEAST, "min_gap_bytes"), (MOST, "max_gap_bytes"))
        for hour, value in zip(means.index, means[column], strict=True)
    ]
    result = _trend(found, gpu, int(run.summary["seed"]))
    slopes = (None,) * 3 if result is None else (
        result.slope_mib_per_h, result.low_mib_per_h, result.high_mib_per_h
    )  # fmt: skip
    verdict = "too few samples" if result is None else result.verdict
    return rows + [
        _row(run, value, case, quantity, "MiB/h", also=verdict)
        for quantity, value in zip((SLOPE, LOW, HIGH), slopes, strict=True)
    ]


def _row(
    run: Run | None, ours: float | None, case: Case, quantity: str, unit: str,
    x: float | None = None, also: str = "",
) -> Row:  # fmt: skip
    return row(run, ours, panel="", system=case.label, quantity=quantity, unit=unit, x=x,
               x_is="hours" if x is not None else "", also=also)  # fmt: skip


def _timeline(run: Run) -> pd.DataFrame:
    columns = ("time_s", "reserved_bytes", "allocated_bytes", "min_gap_bytes", "max_gap_bytes")
    found = run.timeline.read(columns, run.notes).dropna()
    return found.assign(gap=found["reserved_bytes"] - found["allocated_bytes"])


def _spans(found: pd.DataFrame, length_s: float) -> pd.DataFrame:
    """Means, least and most of POINTS spans of time, by the hour in their middle."""
    span_h = length_s / 3600 / POINTS
    span = np.minimum(found["time_s"] / 3600 // span_h, POINTS - 1)
    kinds = {"gap": "mean", "min_gap_bytes": "min", "max_gap_bytes": "max"}
    return found.groupby((span + 0.5) * span_h).agg(kinds)


def _trend(found: pd.DataFrame, gpu: Gpu, seed: int) -> Trend | None:
    columns = ("time_s", "reserved_bytes", "allocated_bytes")
    series = Series(*(found[name].to_numpy(dtype=float) for name in columns))
    return trend([series], gpu.usable_bytes, seed)


def _values(rows: Sequence[Row], quantity: str) -> list[float]:
    return [np.nan if each.ours is None else each.ours for each in of(rows, quantity=quantity)]


def _said(rows: Sequence[Row], case: Case) -> str:
    """The verdict with its interval."""
    mine = of(rows, system=case.label)
    slope = next(iter(of(mine, quantity=SLOPE)), None)
    if slope is None or slope.ours is None:
        return "not known"
    (low,), (high,) = _values(mine, LOW), _values(mine, HIGH)
    verdict = slope.note.rpartition("; ")[2]
    return f"{verdict} ({round(low):+d} to {round(high):+d} MiB/h)"
