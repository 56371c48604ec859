"""Figure 14: parallel sampling and beam search under load."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure as Drawing

from bench.paper.curves import TITLE_END, draw_curves, latency_row, rates_rps, served_rows
from bench.paper.decoding import Decoding
from bench.paper.drawing import column_figure, of, panels
from bench.paper.figure import Published, Row, published
from bench.paper.setups import ALPACA, OPT_13B
from bench.paper.systems import MAX, ORACLE, POW2, VLLM, System
from bench.paper.task import BACKLOG_RPS, Point, Task
from bench.report.drawing import legend_below

SYSTEMS = (MAX, POW2, ORACLE, VLLM)
TRAFFIC_S = 45.0
BACKLOG = 1500  # requests: some still wait when three quarters are done
# Highest rate in requests/s; the more branches, the fewer requests fit.
TOPS_RPS = {
    Decoding(2): 32.0, Decoding(4): 20.0, Decoding(6): 14.0,
    Decoding(2, "scores"): 40.0, Decoding(4, "scores"): 28.0, Decoding(6, "scores"): 22.0,
}  # fmt: skip
MANY = "engine.max_num_seqs=1024"  # branches count: memory is to be what limits them
WIDEST_BEAM = published("section 6.3: 1.3 in basic sampling, 2.3 here", 2.3)


class Figure14:
    """OPT-13B with Alpaca's lengths: 2, 4 and 6 samples, and as many beams."""

    name = "fig14"
    title = "parallel sampling and beam search: latency against request rate, Alpaca"
    files = None

    def rows(self, task: Task) -> list[Row]:
        points = {
            (decoding, system, rate): _point(task, decoding, system, rate)
            for decoding, top in TOPS_RPS.items()
            for system in SYSTEMS
            for rate in rates_rps(top, *((4, 0.4) if task.quick else (8, 0.58)))
        }
        backlogs = {(decoding, system): _backlog(task, decoding, system) for decoding in TOPS_RPS
                    for system in SYSTEMS}  # fmt: skip
        runs = task.run([*points.values(), *backlogs.values()])
        rows = [
            latency_row(runs.get(point.name), _panel(decoding), system, rate)
            for (decoding, system, rate), point in points.items()
        ]
        for decoding in TOPS_RPS:
            mine = {system: runs.get(backlogs[decoding, system].name) for system in SYSTEMS}
            rows += served_rows(mine, _panel(decoding), VLLM, _published(decoding))
        return rows

    def draw(self, rows: Sequence[Row]) -> Drawing:
        figure = column_figure(5.2)
        title = f"PagedAttention, figure 14 {TITLE_END}"
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
        grid = figure.subplots(2, 3)
        for axes, panel in zip(grid.flat, panels(rows), strict=True):
            draw_curves(axes, of(rows, panel=panel), SYSTEMS, top=1.0)
            axes.set_title(panel, fontsize=8)
        for axes in grid[:, 0]:
            axes.set_ylabel("normalized latency, s/token")
        legend_below(figure, *grid[0, 0].get_legend_handles_labels())
        return figure


def _panel(decoding: Decoding) -> str:
    return f"{decoding.label}, {decoding.width}"


def _point(task: Task, decoding: Decoding, system: System, rate: float) -> Point:
    traffic = (*_setup(task, decoding, system), task.traffic_s(TRAFFIC_S))
    return Point(f"{decoding.key},{system.key},rate={rate:g}", traffic, rate)


def _backlog(task: Task, decoding: Decoding, system: System) -> Point:
    traffic = (*_setup(task, decoding, system), *task.backlog(BACKLOG))
    return Point(f"{decoding.key},{system.key},backlog", traffic, BACKLOG_RPS)


def _setup(task: Task, decoding: Decoding, system: System) -> tuple[str, ...]:
    requests = (*task.dataset(ALPACA), *decoding.overrides(ALPACA))
    return (*OPT_13B.overrides, MANY, *requests, *system.overrides)


def _published(decoding: Decoding) -> dict[System, Published | None]:
    widest = decoding == Decoding(6, "scores")
    return {MAX: None, POW2: None, ORACLE: WIDEST_BEAM if widest else None}
