"""Figure 12: normalized latency against the request rate, three models, two datasets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.figure import Figure as Drawing

from bench.paper.curves import draw_curves, latency_row, rates_rps, sustained_rows
from bench.paper.drawing import column_figure, of, panels
from bench.paper.figure import Row, published
from bench.paper.setups import ALPACA, OPT_13B, OPT_66B, OPT_175B, SHAREGPT, Dataset, Server
from bench.paper.systems import FASTER_TRANSFORMER, MAX, ORACLE, POW2, VLLM, System
from bench.paper.task import Point, Task
from bench.report.drawing import legend_below

SYSTEMS = (FASTER_TRANSFORMER, MAX, POW2, ORACLE, VLLM)
# Section 6.2, of the ShareGPT row over all three models; FasterTransformer's is "up to 22x".
RATIOS = {
    FASTER_TRANSFORMER: published("section 6.2, at most", 1.0, 22.0),
    MAX: published("section 6.2, over three models", 2.7, 8.0),
    POW2: None,
    ORACLE: published("section 6.2, over three models", 1.7, 2.7),
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


PANELS = (
    Panel(SHAREGPT, OPT_13B, 2.5, 400),
    Panel(SHAREGPT, OPT_66B, 1.5, 400),
    Panel(SHAREGPT, OPT_175B, 6.0, 300),
    Panel(ALPACA, OPT_13B, 75.0, 60),
    Panel(ALPACA, OPT_66B, 55.0, 60),
    Panel(ALPACA, OPT_175B, 60.0, 60),
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
            for rate in rates_rps(panel.top_rps, *((5, 0.45) if task.quick else (10, 0.68)))
        }
        runs = task.run(list(points.values()))
        rows = [
            latency_row(runs.get(point.name), panel.label, system, rate)
            for (panel, system, rate), point in points.items()
        ]
        return rows + [each for panel in PANELS for each in _ratios(panel, rows)]

    def draw(self, rows: Sequence[Row]) -> Drawing:
        figure = column_figure(5.2)
        figure.suptitle("PagedAttention, figure 12", x=0.01, ha="left", fontweight="bold")
        grid = figure.subplots(2, 3)
        for axes, panel in zip(grid.flat, panels(rows), strict=True):
            draw_curves(axes, of(rows, panel=panel), SYSTEMS, top=1.0)
            axes.set_title(panel.replace(", ", "\n", 1), fontsize=8)
        for axes in grid[:, 0]:
            axes.set_ylabel("normalized latency, s/token")
        legend_below(figure, *grid[0, 0].get_legend_handles_labels())
        return figure


def _point(task: Task, panel: Panel, system: System, rate: float) -> Point:
    name = f"{panel.dataset.workload},{panel.server.key},{system.key},rate={rate:g}"
    traffic = (*task.dataset(panel.dataset), task.traffic_s(panel.traffic_s))
    return Point(name, (*panel.server.overrides, *traffic, *system.overrides), rate)


def _ratios(panel: Panel, rows: Sequence[Row]) -> list[Row]:
    said = RATIOS if panel.dataset is SHAREGPT else dict.fromkeys(RATIOS)
    return sustained_rows(of(rows, panel=panel.label), VLLM, said)
