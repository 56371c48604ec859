"""Figure 14: parallel sampling and beam search under load."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure as Drawing

from bench.paper.curves import draw_curves, latency_row, rates_rps, sustained_rows
from bench.paper.decoding import Decoding
from bench.paper.drawing import column_figure, of, panels
from bench.paper.figure import Published, Row, published
from bench.paper.setups import ALPACA, OPT_13B
from bench.paper.systems import MAX, ORACLE, POW2, VLLM, System
from bench.paper.task import Point, Task
from bench.report.drawing import legend_below

SYSTEMS = (MAX, POW2, ORACLE, VLLM)
TRAFFIC_S = 45.0
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
        runs = task.run(list(points.values()))
        rows = [
            latency_row(runs.get(point.name), _panel(decoding), system, rate)
            for (decoding, system, rate), point in points.items()
        ]
        return rows + [each for decoding in TOPS_RPS for each in _ratios(decoding, rows)]

    def draw(self, rows: Sequence[Row]) -> Drawing:
        figure = column_figure(5.2)
        figure.suptitle("PagedAttention, figure 14", x=0.01, ha="left", fontweight="bold")
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
    traffic = (*task.dataset(ALPACA), task.traffic_s(TRAFFIC_S), *decoding.overrides(ALPACA))
    name = f"{decoding.key},{system.key},rate={rate:g}"
    return Point(name, (*OPT_13B.overrides, MANY, *traffic, *system.overrides), rate)


def _ratios(decoding: Decoding, rows: Sequence[Row]) -> list[Row]:
    said: dict[System, Published | None] = {MAX: None, POW2: None, ORACLE: None}
    if decoding == Decoding(6, "scores"):
        said[ORACLE] = WIDEST_BEAM
    return sustained_rows(of(rows, panel=_panel(decoding)), VLLM, said)
