"""Figure 13: how many requests each system has in a batch, on average."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from bench.paper.drawing import column_figure, of, pair_handles, pair_of_bars, panels
from bench.paper.figure import Row, published
from bench.paper.reading import number, percent, row
from bench.paper.setups import ALPACA, OPT_13B, SHAREGPT, Dataset
from bench.paper.systems import MAX, ORACLE, POW2, VLLM, System
from bench.paper.task import CV_FACTOR, Point, Task
from bench.report.drawing import legend_below
from bench.report.palette import LIGHT
from bench.report.results import Run

MEAN = "mean batched requests"
SYSTEMS = (MAX, POW2, ORACLE, VLLM)
SPREADS = (1.0, 0.75, 1.25)
RATES_RPS = {SHAREGPT: 2.0, ALPACA: 30.0}
TRAFFIC_S = {SHAREGPT: 3600.0, ALPACA: 900.0}
PUBLISHED = {
    SHAREGPT: dict(zip(SYSTEMS, (7.00, 9.81, 13.62, 30.42), strict=True)),
    ALPACA: dict(zip(SYSTEMS, (7.00, 43.24, 72.75, 132.44), strict=True)),
}
FITTED = "the step overhead of costs=sosp23 was fitted to this number"
HELD_OUT = "held out: nothing was fitted to Alpaca"


class Figure13:
    """Batched requests: OPT-13B, ShareGPT at 2 and Alpaca at 30 requests/s."""

    name = "fig13"
    title = "mean batched requests of the four systems, ShareGPT and Alpaca"
    files = "ShareGPT lengths"

    def rows(self, task: Task) -> list[Row]:
        cases = [
            (dataset, system, spread)
            for dataset in RATES_RPS
            for spread in task.spreads(SPREADS)
            for system in SYSTEMS
        ]
        runs = task.run([_point(task, *case) for case in cases])
        return [each for case in cases for each in _rows(runs.get(_name(*case)), *case)]

    def draw(self, rows: Sequence[Row]) -> Drawing:
        figure = column_figure(3.1)
        figure.suptitle("PagedAttention, figure 13", x=0.01, ha="left", fontweight="bold")
        all_axes = figure.subplots(1, len(panels(rows)), squeeze=False)[0]
        for axes, panel in zip(all_axes, panels(rows), strict=True):
            shown = of(rows, panel=panel, quantity=MEAN)
            for place, system in enumerate(SYSTEMS):
                (each,) = of(shown, system=system.label, x=1.0)
                spread = [r.ours for r in of(shown, system=system.label) if r.ours is not None]
                pair_of_bars(axes, place, each, system.colour, spread)
            axes.set_xticks(range(len(SYSTEMS)), [s.label.replace(" ", "\n") for s in SYSTEMS])
            axes.margins(y=0.2)
            axes.grid(visible=False, axis="x")
            axes.set_title(panel)
            axes.set_ylabel(MEAN)
        handles, names = pair_handles(LIGHT.muted)
        whisker = Line2D([], [], color=LIGHT.ink, linewidth=1.5)
        legend_below(figure, [*handles, whisker], [*names, "cv of lengths x 0.75 to 1.25"])
        return figure


def _point(task: Task, dataset: Dataset, system: System, spread: float) -> Point:
    overrides = (*OPT_13B.overrides, *task.dataset(dataset), task.traffic_s(TRAFFIC_S[dataset]))
    name = _name(dataset, system, spread)
    return Point(name, (*overrides, *system.overrides), RATES_RPS[dataset], spread)


def _name(dataset: Dataset, system: System, spread: float) -> str:
    return f"{dataset.workload},{system.key},spread={spread:g}"


def _rows(run: Run | None, dataset: Dataset, system: System, spread: float) -> list[Row]:
    mean = published("figure 13", PUBLISHED[dataset][system])
    alone = spread == 1
    quantities = [
        (MEAN, "requests", number(run, "batch", "mean"), mean if alone else None),
        ("mean while memory-bound", "requests", number(run, "memory_bound", "batch_mean"), None),
        ("memory-bound time", "% of time", percent(run, "memory_bound", "share_of_time"), None),
    ]
    return [
        row(
            run, ours, panel=f"{dataset.label}, {RATES_RPS[dataset]:g} requests/s",
            system=system.label, x=spread, x_is=CV_FACTOR, quantity=quantity, unit=unit,
            paper=paper, also=_also(dataset, system, spread, paper is not None),
        )
        for quantity, unit, ours, paper in quantities
    ]  # fmt: skip


def _also(dataset: Dataset, system: System, spread: float, compared: bool) -> str:
    if spread != 1:
        return f"sensitivity: cv of lengths x {spread:g}"
    if not compared:
        return ""
    if dataset is ALPACA:
        return HELD_OUT
    return FITTED if system is VLLM else ""
