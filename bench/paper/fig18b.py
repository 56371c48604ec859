"""Figure 18b: end-to-end latency against the block size."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import LogLocator, NullLocator

from bench.paper.curves import LATENCY, UNIT
from bench.paper.drawing import column_figure, of, panels
from bench.paper.figure import Row
from bench.paper.reading import number, percent, row
from bench.paper.setups import ALPACA, OPT_13B, SHAREGPT, Dataset
from bench.paper.task import Point, Task
from bench.report.drawing import legend_below
from bench.report.results import Run

BLOCKS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# The paper fixes a rate for each and does not give it: ours load the card well, and serve.
RATES_RPS = {SHAREGPT: 1.8, ALPACA: 40.0}
TRAFFIC_S = {SHAREGPT: 1800.0, ALPACA: 120.0}
COLOURS, MARKERS = ("#0072B2", "#D55E00"), ("o", "s")
SAID = {
    SHAREGPT: "section 7.2: 16 to 128 are best",
    ALPACA: "section 7.2: 16 and 32 work well, larger ones are much worse",
}


class Figure18b:
    """OPT-13B on one card at a fixed rate: small blocks slow attention, large ones waste memory."""

    name = "fig18b"
    title = "latency against block size, ShareGPT and Alpaca"
    files = "ShareGPT lengths"

    def rows(self, task: Task) -> list[Row]:
        cases = [(dataset, block) for dataset in RATES_RPS for block in BLOCKS]
        runs = task.run([_point(task, *case) for case in cases])
        return [each for case in cases for each in _rows(runs.get(_name(*case)), *case)]

    def draw(self, rows: Sequence[Row]) -> Drawing:
        figure = column_figure(3.4)
        axes = figure.subplots()
        for panel, colour, marker in zip(panels(rows), COLOURS, MARKERS, strict=True):
            curve = of(rows, panel=panel, quantity=LATENCY)
            known = [(r.x, r.ours) for r in curve if r.x is not None and r.ours is not None]
            axes.plot(
                [x for x, _ in known], [y for _, y in known], color=colour, marker=marker,
                markersize=4, linewidth=1.2, label=panel,
            )  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set_xticks(BLOCKS, [str(block) for block in BLOCKS])
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("block size, tokens (log scale)")
        axes.set_ylabel("normalized latency, s/token (log scale)")
        axes.set_title("PagedAttention, figure 18b")
        legend_below(figure, *axes.get_legend_handles_labels())
        return figure


def _point(task: Task, dataset: Dataset, block: int) -> Point:
    traffic = (*task.dataset(dataset), task.traffic_s(TRAFFIC_S[dataset]))
    backend = ("backend=paged", f"backend.block_size={block}")
    return Point(
        _name(dataset, block), (*OPT_13B.overrides, *traffic, *backend), RATES_RPS[dataset]
    )


def _name(dataset: Dataset, block: int) -> str:
    return f"{dataset.workload},block={block}"


def _rows(run: Run | None, dataset: Dataset, block: int) -> list[Row]:
    quantities = (
        (LATENCY, UNIT, number(run, "normalized_latency_s", "mean")),
        ("held but not filled", "% of held", percent(run, "held_waste")),
        ("memory-bound time", "% of time", percent(run, "memory_bound", "share_of_time")),
    )
    return [
        row(run, ours, panel=f"{dataset.label}, {RATES_RPS[dataset]:g} requests/s", system="vLLM",
            x=block, x_is="block size, tokens", quantity=quantity, unit=unit,
            also=SAID[dataset] if quantity == LATENCY else "")
        for quantity, unit, ours in quantities
    ]  # fmt: skip
