"""Figure 15: KV memory saved by sharing, in parallel sampling and beam search."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from bench.paper.decoding import SURVIVORS, Decoding
from bench.paper.drawing import column_figure, of, panels
from bench.paper.figure import Published, Row, published
from bench.paper.reading import percent, row
from bench.paper.setups import ALPACA, OPT_13B, SHAREGPT, Dataset
from bench.paper.systems import VLLM
from bench.paper.task import Point, Task
from bench.report.drawing import legend_below
from bench.report.palette import LIGHT

WIDTHS = (2, 4, 6)
SAVED = "blocks saved by sharing / blocks without sharing"
KINDS = (None, *SURVIVORS)
COLOURS = {None: "#0072B2", "scores": "#D55E00", "uniform": "#E69F00"}
RATES_RPS = {ALPACA: 4.0, SHAREGPT: 0.4}
TRAFFIC_S = {ALPACA: 300.0, SHAREGPT: 900.0}
# Ranges over widths 2, 4 and 6: figure 15 and section 6.3.
PUBLISHED = {
    (ALPACA, False): published("figure 15, over widths 2-6", 6.1, 9.8),
    (SHAREGPT, False): published("section 6.3, over widths 2-6", 16.2, 30.5),
    (ALPACA, True): published("figure 15, over widths 2-6", 37.6, 55.2),
    (SHAREGPT, True): published("section 6.3, over widths 2-6", 44.3, 66.3),
}


class Figure15:
    """Averaged over time: OPT-13B, both datasets, beams that survive by either process."""

    name = "fig15"
    title = "memory saved by sharing: parallel sampling and beam search, ShareGPT and Alpaca"
    files = "ShareGPT lengths"

    def rows(self, task: Task) -> list[Row]:
        cases = [
            (dataset, Decoding(width, kind))
            for dataset in RATES_RPS
            for kind in KINDS
            for width in WIDTHS
        ]
        runs = task.run([_point(task, *case) for case in cases])
        rows = []
        for dataset, decoding in cases:
            run = runs.get(_name(dataset, decoding))
            rows.append(
                row(run, percent(run, "sharing", "saved"), panel=dataset.label,
                    system=decoding.label, x=decoding.width, x_is="branches", quantity=SAVED,
                    unit="%", paper=_published(dataset, decoding), also=_also(decoding))
            )  # fmt: skip
        return rows

    def draw(self, rows: Sequence[Row]) -> Drawing:
        figure = column_figure(3.2)
        figure.suptitle("PagedAttention, figure 15", x=0.01, ha="left", fontweight="bold")
        grid = figure.subplots(1, len(panels(rows)), sharey=True, squeeze=False)[0]
        for axes, panel in zip(grid, panels(rows), strict=True):
            _draw_panel(axes, of(rows, panel=panel))
        grid[0].set_ylabel("KV memory saved, %")
        legend_below(figure, *grid[0].get_legend_handles_labels())
        return figure


def _point(task: Task, dataset: Dataset, decoding: Decoding) -> Point:
    traffic = (*task.dataset(dataset), task.traffic_s(TRAFFIC_S[dataset]))
    overrides = (*OPT_13B.overrides, *traffic, *VLLM.overrides, *decoding.overrides(dataset))
    return Point(_name(dataset, decoding), overrides, RATES_RPS[dataset])


def _name(dataset: Dataset, decoding: Decoding) -> str:
    return f"{dataset.workload},{decoding.key}"


def _published(dataset: Dataset, decoding: Decoding) -> Published:
    return PUBLISHED[dataset, decoding.survivors is not None]


def _also(decoding: Decoding) -> str:
    if decoding.survivors is None:
        return ""
    return f"beams survive by workloads/survivors/{decoding.survivors}.py, not fitted"


def _draw_panel(axes: Axes, rows: Sequence[Row]) -> None:
    wide = 0.26
    for number, kind in enumerate(KINDS):
        label = Decoding(1, kind).label
        mine = of(rows, system=label)
        places = [place + (number - 1) * wide for place in range(len(mine))]
        axes.bar(places, [r.ours or 0 for r in mine], wide * 0.92, color=COLOURS[kind], label=label)
        for place, each in zip(places, mine, strict=True):
            text = "?" if each.ours is None else f"{each.ours:.0f}"
            axes.annotate(text, (place, each.ours or 0), (0, 2), textcoords="offset points",
                          ha="center", fontsize=7)  # fmt: skip
    for index, name in ((0, "sampling"), (-1, "beam search")):
        _band(axes, _paper(rows, index), f"paper,\n{name}")
    axes.set_xticks(range(len(WIDTHS)), [str(width) for width in WIDTHS])
    axes.set_xlabel("samples or beams")
    axes.set_title(rows[0].panel)
    axes.set_xlim(-0.5, len(WIDTHS) + 0.2)
    axes.set_ylim(0, 100)
    axes.grid(visible=False, axis="x")


def _band(axes: Axes, paper: Published, name: str) -> None:
    axes.axhspan(
        paper.low, paper.high, facecolor="none", edgecolor=LIGHT.muted, hatch="////", linewidth=0,
        alpha=0.5, zorder=0.5,
    )  # fmt: skip
    middle = (paper.low + paper.high) / 2
    axes.text(
        len(WIDTHS) - 0.15, middle, name, ha="center", va="center", fontsize=7,
        bbox={"facecolor": LIGHT.paper, "edgecolor": "none", "pad": 1.0},
    )  # fmt: skip


def _paper(rows: Sequence[Row], index: int) -> Published:
    paper = rows[index].paper
    assert paper is not None
    return paper
