"""Figure 2: where KV memory goes under four systems, while requests wait for it."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.patches import Patch

from bench.paper.drawing import column_figure, of, systems
from bench.paper.figure import Published, Row, published
from bench.paper.reading import percent, row
from bench.paper.setups import OPT_13B, SHAREGPT
from bench.paper.systems import MAX, ORACLE, POW2, VLLM, System
from bench.paper.task import CV_FACTOR, Point, Task
from bench.report.drawing import legend_below
from bench.report.palette import LIGHT, MEMORY_USES
from bench.report.results import Run

RATE_RPS = 2.0
# Keys of a summary. Buddy rounding counts as external here, as in the paper, and nowhere else.
COMPONENTS = {
    "token states": ("token_states",),
    "reservation": ("reservation",),
    "internal": ("internal",),  # none is undetermined: requests are served to the end
    "external & others": ("rounding", "cached", "external"),
}
PUBLISHED = {
    MAX: (20.4, 13.3, 57.3, 8.9),
    POW2: (26.8, 17.9, 13.6, 41.6),
    ORACLE: (38.2, 25.2, None, 36.6),
    VLLM: (96.3, None, None, None),
}
SPREADS = (1.0, 0.75, 1.25)
USES = {
    component: next(use for use in MEMORY_USES if use.share == keys[-1])
    for component, keys in COMPONENTS.items()
}


class Figure2:
    """Shares of the KV budget, averaged over memory-bound time: OPT-13B, ShareGPT, 2 requests/s."""

    name = "fig2"
    title = "waste of KV memory: Orca (Max, Pow2, Oracle) and vLLM"
    files = "ShareGPT lengths"

    def rows(self, task: Task) -> list[Row]:
        overrides = (*OPT_13B.overrides, *task.dataset(SHAREGPT), task.traffic_s(3600))
        cases = [(system, spread) for spread in task.spreads(SPREADS) for system in PUBLISHED]
        points = [
            Point(_name(system, spread), (*overrides, *system.overrides), RATE_RPS, spread)
            for system, spread in cases
        ]
        runs = task.run(points)
        return [
            each
            for system, spread in cases
            for each in _rows(runs.get(_name(system, spread)), system, spread)
        ]

    def draw(self, rows: Sequence[Row]) -> Drawing:
        shown = of(rows, x=1.0)
        names = systems(shown)
        figure = column_figure(0.72 * len(names) + 1.1)
        axes = figure.subplots()
        for place, name in enumerate(names):
            _bars(axes, place, of(shown, system=name))
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0, pad=44)
        axes.set_xlim(0, 100)
        axes.set_xlabel("% of KV memory while requests waited for it")
        axes.grid(visible=False, axis="y")
        axes.set_title("PagedAttention, figure 2")
        handles = [
            Patch(facecolor=use.colour, hatch=use.hatch, edgecolor=LIGHT.paper)
            for use in USES.values()
        ]
        legend_below(figure, handles, list(COMPONENTS))
        return figure


def _name(system: System, spread: float) -> str:
    return f"{system.key},spread={spread:g}"


def _rows(run: Run | None, system: System, spread: float) -> list[Row]:
    return [
        row(
            run,
            _sum(run, keys),
            panel="ShareGPT",
            system=system.label,
            x=spread,
            x_is=CV_FACTOR,
            quantity=quantity,
            unit="% of KV memory",
            paper=_published(value) if spread == 1 else None,
            also="" if spread == 1 else f"sensitivity: cv of lengths x {spread:g}",
        )
        for (quantity, keys), value in zip(COMPONENTS.items(), PUBLISHED[system], strict=True)
    ]


def _published(value: float | None) -> Published | None:
    return None if value is None else published("figure 2", value)


def _sum(run: Run | None, keys: tuple[str, ...]) -> float | None:
    shares = [percent(run, "memory_bound", key) for key in keys]
    known = [share for share in shares if share is not None]
    return sum(known) if len(known) == len(shares) else None


def _bars(axes: Axes, place: int, rows: Sequence[Row]) -> None:
    ours = [each.ours for each in rows]
    paper = [each.paper.low if each.paper else None for each in rows]
    for offset, values, whose in ((-0.19, ours, "fragbench"), (0.19, paper, "paper")):
        left = 0.0
        for each, value in zip(rows, values, strict=True):
            if value is None:
                continue
            use = USES[each.quantity]
            axes.barh(
                place + offset, value, 0.34, left=left, color=use.colour, hatch=use.hatch,
                edgecolor=LIGHT.paper, linewidth=0.5,
            )  # fmt: skip
            if value >= 5:
                _label(axes, left + value / 2, place + offset, f"{value:.1f}")
            left += value
        axes.annotate(
            whose, (0, place + offset), (-4, 0), xycoords=axes.get_yaxis_transform(),
            textcoords="offset points", ha="right", va="center", fontsize=7,
            annotation_clip=False,
        )  # fmt: skip


def _label(axes: Axes, x: float, y: float, text: str) -> None:
    axes.text(
        x, y, text, ha="center", va="center", fontsize=7, color="#14171C",
        bbox={"facecolor": "#FFFFFFD9", "edgecolor": "none", "pad": 1.0},
    )  # fmt: skip
