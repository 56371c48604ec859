"""Figure 12: normalized latency against the request rate, three models, two datasets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.figure import Figure as Drawing

from bench.paper.curves import TITLE_END, draw_curves, latency_row, rates_rps, served_rows
from bench.paper.drawing import column_figure, of, panels
from bench.paper.figure import Row, at_most, published
from bench.paper.setups import ALPACA, OPT_13B, OPT_66B, OPT_175B, SHAREGPT, Dataset, Server
from bench.paper.systems import FASTER_TRANSFORMER, MAX, ORACLE, POW2, VLLM, System
from bench.paper.task import BACKLOG_RPS, Point, Task
from bench.report.drawing import legend_below

SYSTEMS = (FASTER_TRANSFORMER, MAX, POW2, ORACLE, VLLM)
# Of the ShareGPT row over all three models.
RATIOS = {
    FASTER_TRANSFORMER: at_most("section 6.2: up to", 22.0),
    MAX: published("section 6.2, over three models", 2.7, 8.0),
    POW2: None,
    ORACLE: published("section 6.2, over three models", 1.7, 2.7),
}
MANY = "engine.max_num_seqs=1024"  # memory is to be what limits a batch


class Panel(NamedTuple):
    """One of the six: its highest rate in requests/s, seconds of traffic, and the requests of a
    backlog, of which some still wait when three quarters are done."""

    dataset: Dataset
    server: Server
    top_rps: float
    traffic_s: float
    backlog: int

    @property
    def label(self) -> str:
        return f"{self.dataset.label}, {self.server.label}"


PANELS = (
    Panel(SHAREGPT, OPT_13B, 2.5, 400, 1000),
    Panel(SHAREGPT, OPT_66B, 1.5, 400, 1000),
    Panel(SHAREGPT, OPT_175B, 6.0, 300, 1500),
    Panel(ALPACA, OPT_13B, 75.0, 60, 3000),
    Panel(ALPACA, OPT_66B, 55.0, 60, 3000),
    Panel(ALPACA, OPT_175B, 60.0, 60, 6000),
)


class Figure12:
    """Mean E2E / output tokens of five systems, and what they serve from a backlog."""

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
        backlogs = {(panel, system): _backlog(task, panel, system) for panel in PANELS
                    for system in SYSTEMS}  # fmt: skip
        runs = task.run([*points.values(), *backlogs.values()])
        rows = [
            latency_row(runs.get(point.name), panel.label, system, rate)
            for (panel, system, rate), point in points.items()
        ]
        for panel in PANELS:
            mine = {system: runs.get(backlogs[panel, system].name) for system in SYSTEMS}
            said = RATIOS if panel.dataset is SHAREGPT else dict.fromkeys(RATIOS)
            rows += served_rows(mine, panel.label, VLLM, said)
        return rows

    def draw(self, rows: Sequence[Row]) -> Drawing:
        figure = column_figure(5.2)
        title = f"PagedAttention, figure 12 {TITLE_END}"
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
        grid = figure.subplots(2, 3)
        for axes, panel in zip(grid.flat, panels(rows), strict=True):
            draw_curves(axes, of(rows, panel=panel), SYSTEMS, top=1.0)
            axes.set_title(panel.replace(", ", "\n", 1), fontsize=8)
        for axes in grid[:, 0]:
            axes.set_ylabel("normalized latency, s/token")
        legend_below(figure, *grid[0, 0].get_legend_handles_labels())
        return figure


def _point(task: Task, panel: Panel, system: System, rate: float) -> Point:
    traffic = (*_setup(task, panel, system), task.traffic_s(panel.traffic_s))
    return Point(f"{_name(panel, system)},rate={rate:g}", traffic, rate)


def _backlog(task: Task, panel: Panel, system: System) -> Point:
    traffic = (*_setup(task, panel, system), *task.backlog(panel.backlog))
    return Point(f"{_name(panel, system)},backlog", traffic, BACKLOG_RPS)


def _setup(task: Task, panel: Panel, system: System) -> tuple[str, ...]:
    return (*panel.server.overrides, MANY, *task.dataset(panel.dataset), *system.overrides)


def _name(panel: Panel, system: System) -> str:
    return f"{panel.dataset.workload},{panel.server.key},{system.key}"
