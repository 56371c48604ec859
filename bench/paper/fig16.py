"""Figure 16: a prefix that all prompts share, found once in memory."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure as Drawing

from bench.paper.curves import TITLE_END, draw_curves, latency_row, rates_rps, served_rows
from bench.paper.drawing import column_figure, of, panels
from bench.paper.figure import Row, published
from bench.paper.setups import ALPACA, LLAMA_13B
from bench.paper.systems import ORACLE, SHARED_PREFIX, System
from bench.paper.task import BACKLOG_RPS, Point, Task
from bench.report.drawing import legend_below

SYSTEMS = (ORACLE, SHARED_PREFIX)
TRAFFIC_S = 90.0
BACKLOG = 3000  # requests: some still wait when three quarters are done
MANY = "engine.max_num_seqs=1024"  # memory is to be what limits a batch
# The paper gives no lengths for WMT16 English-German: sentences of 27 words or so are assumed to
# be 40 tokens each way, their spread Alpaca's; only the prefixes are published.
SENTENCES = (
    "workload.name=translation",
    f"{ALPACA.kind}.prompt.mean_tokens=40",
    f"{ALPACA.kind}.output.mean_tokens=40",
    f"{ALPACA.kind}.output.cv=0.772",
)
# Examples in the prompt: tokens of the prefix, the highest rate in requests/s, and the throughput
# that the paper states over Orca (Oracle).
SHOTS = {
    "1 example": (80, 90.0, published("section 6.4", 1.67)),
    "5 examples": (341, 70.0, published("section 6.4", 3.58)),
}


class Figure16:
    """LLaMA-13B translates: the same 80 or 341 tokens stand before each sentence."""

    name = "fig16"
    title = "shared prefix of 80 or 341 tokens: latency against request rate, translation"
    files = None

    def rows(self, task: Task) -> list[Row]:
        points = {
            (shot, system, rate): _point(task, shot, system, rate)
            for shot, (_, top, _) in SHOTS.items()
            for system in SYSTEMS
            for rate in rates_rps(top, *((4, 0.5) if task.quick else (12, 0.82)))
        }
        backlogs = {(shot, system): _backlog(task, shot, system) for shot in SHOTS
                    for system in SYSTEMS}  # fmt: skip
        runs = task.run([*points.values(), *backlogs.values()])
        rows = [
            latency_row(runs.get(point.name), _panel(shot), system, rate)
            for (shot, system, rate), point in points.items()
        ]
        for shot, (_, _, paper) in SHOTS.items():
            mine = {system: runs.get(backlogs[shot, system].name) for system in SYSTEMS}
            rows += served_rows(mine, _panel(shot), SHARED_PREFIX, {ORACLE: paper})
        return rows

    def draw(self, rows: Sequence[Row]) -> Drawing:
        figure = column_figure(3.0)
        title = f"PagedAttention, figure 16 {TITLE_END}"
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
        grid = figure.subplots(1, 2, sharey=True)
        for axes, panel in zip(grid, panels(rows), strict=True):
            mine = of(rows, panel=panel)
            draw_curves(axes, mine, SYSTEMS, top=1.0)
            axes.set_title(f"{panel}\n{_said(mine)}", fontsize=9)
        grid[0].set_ylabel("normalized latency, s/token")
        legend_below(figure, *grid[0].get_legend_handles_labels())
        return figure


def _panel(shot: str) -> str:
    return f"{shot}, a prefix of {SHOTS[shot][0]} tokens"


def _point(task: Task, shot: str, system: System, rate: float) -> Point:
    traffic = (*_setup(task, shot, system), task.traffic_s(TRAFFIC_S))
    return Point(f"prefix={SHOTS[shot][0]},{system.key},rate={rate:g}", traffic, rate)


def _backlog(task: Task, shot: str, system: System) -> Point:
    traffic = (*_setup(task, shot, system), *task.backlog(BACKLOG))
    return Point(f"prefix={SHOTS[shot][0]},{system.key},backlog", traffic, BACKLOG_RPS)


def _setup(task: Task, shot: str, system: System) -> tuple[str, ...]:
    prefix = f"++{ALPACA.kind}.prefix_tokens={SHOTS[shot][0]}"
    requests = (*task.dataset(ALPACA), *SENTENCES, prefix)
    return (*LLAMA_13B.overrides, MANY, *requests, *system.overrides)


def _said(rows: Sequence[Row]) -> str:
    (ratio,) = (r for r in rows if r.paper is not None)
    ours = "?" if ratio.ours is None else f"{ratio.ours:.2f}"
    return f"serves {ours} times as many (paper {ratio.paper})"
