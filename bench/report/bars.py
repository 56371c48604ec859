"""Figures with one row a run: the waste split, throughput and the batch."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bench.report import quantities as q
from bench.report.drawing import (
    Picture,
    legend_below,
    mark,
    new_figure,
    new_panels,
    render,
    say,
)
from bench.report.groups import labels, times, wrapped
from bench.report.palette import LIGHT, MEMORY_USES, backend_colour
from bench.report.quantities import Quantity
from bench.report.results import Run
from bench.report.sheet import sheet

LEAST_LABELLED_SHARE = 0.055
LABEL_INK, LABEL_PAPER = "#14171C", "#FDFDFDD9"
"""Of a number on a coloured bar, in every theme."""


def waste_picture(workload: str, slug: str, group: Sequence[Run]) -> Picture:
    """Shares of the KV budget while memory-bound, as stacked bars."""
    return render(
        f"waste-{slug}",
        f"{workload}: shares of the KV budget B, averaged over memory-bound time.",
        "Stacked bars of the KV budget's shares; " + in_words(group, q.SHARES["token_states"]),
        lambda: _draw_waste(group),
    )


def throughput_picture(workload: str, slug: str, group: Sequence[Run]) -> Picture:
    """Completed requests and output tokens a second, and the mean batch."""
    repeated = any(len(run.each) > 1 for run in group)
    ends = " Whiskers are 95 % intervals over repeats." if repeated else ""
    return render(
        f"throughput-{slug}",
        f"{workload}: throughput ({times(group)} time) and the batch that carried it.{ends}",
        "Bars; " + in_words(group, q.REQUESTS_PER_S),
        lambda: _draw_throughput(group),
    )


def waste_parts(run: Run) -> list[float] | None:
    """The run's shares in the order of `MEMORY_USES`; None where it was never memory-bound."""
    shares = [q.SHARES[use.share].read(run) for use in MEMORY_USES]
    return None if shares[0] is None else [share or 0.0 for share in shares]


def memory_legend(**other_names: str) -> tuple[list[Artist], list[str]]:
    """Handles and names of the uses of KV memory; `other_names` renames some."""
    handles: list[Artist] = [
        Patch(facecolor=use.colour, hatch=use.hatch, edgecolor=LIGHT.paper) for use in MEMORY_USES
    ]
    return handles, [other_names.get(use.share, use.label) for use in MEMORY_USES]


def in_words(runs: Sequence[Run], quantity: Quantity) -> str:
    """One quantity of every run, as a figure's text alternative."""
    said = [f"{run.name} {quantity.shown(run) or 'undefined'}" for run in runs[:12]]
    return f"{quantity.heading} ({quantity.unit or 'number'}): {', '.join(said)}"


def _height(group: Sequence[Run]) -> float:
    """Inches that the rows and their axis take."""
    lines = max(len(_row_name(label).splitlines()) for label in labels(group))
    return max(0.42, 0.17 * lines + 0.06) * len(group) + 0.7


def _row_name(label: str) -> str:
    return wrapped(label, 24)


def _name_rows(axes: Axes, group: Sequence[Run]) -> None:
    """Names the bars from the top down, each with its backend's colour beside it."""
    axes.set_yticks(range(len(group)), [_row_name(label) for label in labels(group)])
    axes.set_ylim(len(group) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, pad=19)
    axes.grid(visible=False, axis="y")
    for row, (run, name) in enumerate(zip(group, axes.get_yticklabels(), strict=True)):
        swatch = axes.annotate(
            "\u25a0", (0, row), (-11, 0), xycoords=axes.get_yaxis_transform(),
            textcoords="offset points", ha="center", va="center", annotation_clip=False,
            color=backend_colour(run.backend), fontsize=11,
        )  # fmt: skip
        mark((swatch, name), run.backend)


def _draw_waste(group: Sequence[Run]) -> Figure:
    figure = new_figure(_height(group) + 0.4)
    axes = figure.subplots()
    _name_rows(axes, group)
    for row, run in enumerate(group):
        _draw_shares(axes, row, run)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    gap = "\n" if sheet().panels == 1 else " "
    axes.set_xlabel(f"share of the KV budget{gap}while memory-bound")
    legend_below(figure, *memory_legend())
    return figure


def _draw_shares(axes: Axes, row: int, run: Run) -> None:
    shares = waste_parts(run)
    if shares is None:
        mark((say(axes, row, q.SHARES["token_states"].why_undefined(run)),), run.backend)
        return
    left = 0.0
    for use, share in zip(MEMORY_USES, shares, strict=True):
        bars = axes.barh(
            row, share, 0.66, left=left, color=use.colour, hatch=use.hatch,
            edgecolor=LIGHT.paper, linewidth=0.5,
        )  # fmt: skip
        mark(bars, run.backend)
        if share >= LEAST_LABELLED_SHARE:
            number = axes.text(
                left + share / 2, row, f"{share * 100:.0f}", ha="center", va="center",
                fontsize=sheet().small_points, color=LABEL_INK,
                bbox={"facecolor": LABEL_PAPER, "edgecolor": "none", "pad": 1.2},
            )  # fmt: skip
            mark((number,), run.backend)
        left += share


def _draw_throughput(group: Sequence[Run]) -> Figure:
    columns = (
        (q.REQUESTS_PER_S, "completed requests/s"),
        (q.OUTPUT_TOKENS_PER_S, "output tokens/s"),
        (q.BATCH_MEAN, "mean batch, requests"),
    )
    figure, panels = new_panels(len(columns), _height(group))
    kind = f"({times(group)})".replace(" and ", "\nand ")
    for axes, (quantity, label) in zip(panels, columns, strict=True):
        _name_rows(axes, group)
        _draw_bars(axes, group, quantity)
        axes.set_xlabel(f"{label} {kind}" if quantity.modelled else label)
        if not axes.get_subplotspec().is_first_col():  # type: ignore[union-attr]
            axes.tick_params(axis="y", labelleft=False)
    return figure


def _draw_bars(axes: Axes, group: Sequence[Run], quantity: Quantity) -> None:
    top = 0.0
    for row, run in enumerate(group):
        found = quantity.estimate(run)
        if found is None:
            mark((say(axes, row, quantity.why_undefined(run)),), run.backend)
            continue
        end = found.value if found.high is None else found.high
        bars = axes.barh(row, found.value, 0.62, color=backend_colour(run.backend))
        number = axes.annotate(
            quantity.shown(run) or "", (end, row), (4, 0), textcoords="offset points",
            va="center", fontsize=sheet().small_points,
        )  # fmt: skip
        mark((*bars, number), run.backend)
        if found.low is not None:
            mark(axes.plot([found.low, end], [row, row], "|-", color=LIGHT.ink, markersize=7,
                           linewidth=1), run.backend)  # fmt: skip
        top = max(top, end)
    axes.set_xlim(0, top * 1.2 or 1)
    axes.grid(visible=False, axis="y")
