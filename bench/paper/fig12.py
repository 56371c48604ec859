"""Figure 12: normalized latency against the request rate, three models, two datasets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from bench.paper.drawing import column_figure, of, panels
from bench.paper.figure import Published, Row, published
from bench.paper.reading import number, row
from bench.paper.setups import ALPACA, OPT_13B, OPT_66B, OPT_175B, SHAREGPT, Dataset, Server
from bench.paper.systems import FASTER_TRANSFORMER, MAX, ORACLE, POW2, VLLM, System
from bench.paper.task import Point, Task
from bench.report.drawing import legend_below
from bench.report.results import Run

SYSTEMS = (FASTER_TRANSFORMER, MAX, POW2, ORACLE, VLLM)
LATENCY, UNIT = "mean normalized latency", "s/token"
BOUND_S = 0.2
"""Normalized latency up to which a rate counts as sustained: the paper's curves have turned up
there, and those of an unloaded system lie far below."""
SUSTAINED = f"rate sustained at {BOUND_S:g} s/token"
RATIO = "vLLM's sustained rate over this system's"
# Section 6.2, of the ShareGPT row over all three models; FasterTransformer's is "up to 22x".
RATIOS = {
    ORACLE: published("section 6.2", 1.7, 2.7),
    MAX: published("section 6.2", 2.7, 8.0),
    FASTER_TRANSFORMER: published("section 6.2, at most", 1.0, 22.0),
}


class Panel(NamedTuple):
    """One of the six: its highest rate in requests/s, and seconds of traffic."""

    dataset: Dataset
    server: Server
    top_rps: float
    traffic_s: float

    @property
    def label(self) -> str:
        return f"{self.dataset.label}, {self.server.label}"

    @property
    def rates_rps(self) -> list[float]:
        """From the highest down by 0.72 each, over a factor of 27."""
        return [float(f"{self.top_rps * 0.72**step:.3g}") for step in range(10, -1, -1)]


PANELS = (
    Panel(SHAREGPT, OPT_13B, 2.5, 600),
    Panel(SHAREGPT, OPT_66B, 1.5, 600),
    Panel(SHAREGPT, OPT_175B, 3.0, 600),
    Panel(ALPACA, OPT_13B, 40.0, 150),
    Panel(ALPACA, OPT_66B, 30.0, 150),
    Panel(ALPACA, OPT_175B, 30.0, 150),
)


class Figure12:
    """Mean E2E / output tokens of five systems, and the rates that they sustain."""

    name = "fig12"
    title = "normalized latency against request rate: three models, two datasets, five systems"
    files = "ShareGPT lengths"

    def rows(self, task: Task) -> list[Row]:
        points = {
            (panel, system, rate): _point(task, panel, system, rate)
            for panel in PANELS
            for system in SYSTEMS
            for rate in (panel.rates_rps[::3] if task.quick else panel.rates_rps)
        }
        runs = task.run(list(points.values()))
        measured = [_row(runs.get(point.name), *case) for case, point in points.items()]
        return [*measured, *(each for panel in PANELS for each in _ratios(panel, measured))]

    def draw(self, rows: Sequence[Row]) -> Drawing:
        figure = column_figure(5.2)
        figure.suptitle("PagedAttention, figure 12", x=0.01, ha="left", fontweight="bold")
        grid = figure.subplots(2, 3)
        for axes, panel in zip(grid.flat, panels(rows), strict=True):
            _draw_panel(axes, of(rows, panel=panel))
        for axes in grid[:, 0]:
            axes.set_ylabel("normalized latency, s/token")
        legend_below(figure, *grid[0, 0].get_legend_handles_labels())
        return figure


def _point(task: Task, panel: Panel, system: System, rate: float) -> Point:
    name = f"{panel.dataset.workload},{panel.server.key},{system.key},rate={rate:g}"
    common = (
        *panel.server.overrides,
        *task.dataset(panel.dataset),
        task.traffic_s(panel.traffic_s),
    )
    return Point(name, (*common, *system.overrides), rate)


def _row(run: Run | None, panel: Panel, system: System, rate: float) -> Row:
    return row(
        run,
        number(run, "normalized_latency_s", "mean"),
        panel=panel.label,
        system=system.label,
        x=rate,
        x_is="requests/s",
        quantity=LATENCY,
        unit=UNIT,
    )


def _ratios(panel: Panel, measured: Sequence[Row]) -> list[Row]:
    """The rate that each system sustains, and what vLLM's is of it."""
    mine = of(measured, panel=panel.label)
    rates = {system: sustained_rps(of(mine, system=system.label)) for system in SYSTEMS}
    rows = []
    for system, rate in rates.items():
        best, ratio = rates[VLLM], None
        if rate is not None and best is not None:
            ratio = best / rate
        for quantity, unit, ours, paper in (
            (SUSTAINED, "requests/s", rate, None),
            (RATIO, "times", ratio, _published(panel, system)),
        ):
            rows.append(
                Row(panel=panel.label, system=system.label, quantity=quantity, unit=unit,
                    ours=ours, paper=paper, lengths=mine[0].lengths, note=mine[0].note)
            )  # fmt: skip
    return rows


def _published(panel: Panel, system: System) -> Published | None:
    return RATIOS.get(system) if panel.dataset is SHAREGPT else None


def sustained_rps(rows: Sequence[Row]) -> float | None:
    """Where the latency of rows by rising rate first passes BOUND_S, between two rates by the
    logarithms of rate and latency; None where it never does, or does from the first on."""
    known = [(r.x, r.ours) for r in rows if r.x is not None and r.ours is not None]
    for (x, y), (next_x, next_y) in pairwise(known):
        if y <= BOUND_S < next_y:
            share = math.log(BOUND_S / y) / math.log(next_y / y)
            return float(x * (next_x / x) ** share)
    return None


def _draw_panel(axes: Axes, rows: Sequence[Row]) -> None:
    for system in SYSTEMS:
        curve = of(rows, system=system.label, quantity=LATENCY)
        shown = [(r.x, r.ours) for r in curve if r.ours is not None]
        axes.plot(
            *zip(*shown, strict=True), color=system.colour, marker=system.marker, markersize=3.5,
            linewidth=1.2, label=system.label,
        )  # fmt: skip
    axes.axhline(BOUND_S, color="#5B6470", linewidth=0.8, linestyle=":")
    axes.set_ylim(0, 1)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("requests/s (log scale)")
    axes.set_title(rows[0].panel.replace(", ", "\n", 1), fontsize=8)
