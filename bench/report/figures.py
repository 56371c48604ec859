"""Figures with one row a run: the waste split, latency, throughput and batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullFormatter

from bench.report import quantities as q
from bench.report.drawing import THEMES, Picture, legend_below, new_figure, png, say, style
from bench.report.groups import by_workload, labels, times, wrapped
from bench.report.palette import MEMORY_USES, Theme, backend_colour
from bench.report.quantities import Quantity
from bench.report.results import Run

LEAST_LABELLED_SHARE = 0.055
LOG_FROM_RATIO = 30
PERCENTILE_MARKS = {"p50": "o", "p90": "D", "p99": "|"}


def render(name: str, caption: str, text: str, draw: Callable[[Theme], Figure]) -> Picture:
    """Draws a figure once a theme."""
    images = []
    for theme in THEMES:
        with style(theme):
            figure = draw(theme)
            images.append(png(figure))
    width, height = figure.canvas.get_width_height()
    return Picture(name, caption, text, images[0], images[1], width, height)


def waste_picture(runs: Sequence[Run]) -> Picture:
    """Shares of the KV budget while memory-bound, as stacked bars; one panel a workload."""
    return render(
        "waste",
        "Shares of the KV budget B, averaged over memory-bound time.",
        "Stacked bars of the KV budget's shares; " + _in_words(runs, q.SHARES["token_states"]),
        lambda theme: _draw_waste(by_workload(runs), theme),
    )


def latency_picture(runs: Sequence[Run]) -> Picture:
    """TTFT, TPOT and E2E: p50, p90 and p99 of each run."""
    return render(
        "latency",
        f"Latency of completed requests ({times(runs)} time). A p99 takes "
        f"{q.P99_SAMPLES} samples and is left out below that.",
        "Ranges from p50 to p99; " + _in_words(runs, q.TTFT["p50"]),
        lambda theme: _draw_latency(by_workload(runs), theme),
    )


def throughput_picture(runs: Sequence[Run]) -> Picture:
    """Completed requests and output tokens a second, and the mean batch."""
    return render(
        "throughput",
        f"Throughput ({times(runs)} time) and the batch that carried it.",
        "Bars; " + _in_words(runs, q.REQUESTS_PER_S),
        lambda theme: _draw_throughput(by_workload(runs), theme),
    )


def waste_parts(run: Run) -> list[float] | None:
    """The run's shares in the order of `MEMORY_USES`; None where it was never memory-bound."""
    shares = [run.number("memory_bound", use.share) for use in MEMORY_USES]
    return None if shares[0] is None else [share or 0.0 for share in shares]


def _in_words(runs: Sequence[Run], quantity: Quantity) -> str:
    """One quantity of every run, as a figure's text alternative."""
    said = [f"{run.name} {quantity.shown(run) or 'undefined'}" for run in runs[:12]]
    return f"{quantity.heading} ({quantity.unit or 'number'}): {', '.join(said)}"


def _heights(groups: Iterable[Sequence[Run]]) -> list[float]:
    """Inches that each row of panels takes: its bars, its title and its axis."""
    return [_row_height(group) * len(group) + 0.85 for group in groups]


def _row_height(group: Sequence[Run]) -> float:
    """Inches that one run's row needs for its name."""
    lines = max(len(_row_name(label).splitlines()) for label in labels(group))
    return max(0.42, 0.17 * lines + 0.06)


def _row_name(label: str) -> str:
    return wrapped(label, 24)


def _axis_time(group: Sequence[Run]) -> str:
    """The kind of the group's times for an axis label, which has no room for a long line."""
    return f"({times(group)})".replace(" and ", "\nand ")


def _name_rows(axes: Axes, group: Sequence[Run]) -> None:
    """Names the bars from the top down, each with its backend's colour beside it."""
    axes.set_yticks(range(len(group)), [_row_name(label) for label in labels(group)])
    axes.set_ylim(len(group) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, pad=19)
    axes.grid(visible=False, axis="y")
    for row, run in enumerate(group):
        axes.annotate(
            "\u25a0", (0, row), (-11, 0), xycoords=axes.get_yaxis_transform(),
            textcoords="offset points", ha="center", va="center", annotation_clip=False,
            color=backend_colour(run.backend), fontsize=11,
        )  # fmt: skip


def _draw_waste(groups: dict[str, list[Run]], theme: Theme) -> Figure:
    columns = min(len(groups), 2)
    rows = ceil(len(groups) / columns)
    longest = max(len(group) for group in groups.values())
    row_height = max(0.5, *map(_row_height, groups.values()))
    figure = new_figure(rows * (row_height * longest + 0.95) + 0.4)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, (workload, group) in zip(panels, groups.items(), strict=False):
        axes.set_title(wrapped(workload, 70 // columns))
        _name_rows(axes, group)
        for row, run in enumerate(group):
            _draw_shares(axes, row, run, theme)
        axes.set_ylim(longest - 0.5, -0.5)
        axes.set_xlim(0, 1)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        axes.set_xlabel("share of the KV budget while memory-bound")
    for axes in panels[len(groups) :]:
        axes.set_visible(False)
    handles, names = memory_legend(theme)
    legend_below(figure, handles, names)
    return figure


def memory_legend(theme: Theme, **other_names: str) -> tuple[list[Artist], list[str]]:
    """Handles and names of the uses of KV memory; `other_names` renames some."""
    handles: list[Artist] = [
        Patch(facecolor=use.colour, hatch=use.hatch, edgecolor=theme.paper) for use in MEMORY_USES
    ]
    return handles, [other_names.get(use.share, use.label) for use in MEMORY_USES]


def _draw_shares(axes: Axes, row: int, run: Run, theme: Theme) -> None:
    shares = waste_parts(run)
    if shares is None:
        say(axes, row, q.SHARES["token_states"].why_undefined(run), theme)
        return
    left = 0.0
    for use, share in zip(MEMORY_USES, shares, strict=True):
        axes.barh(
            row, share, 0.66, left=left, color=use.colour, hatch=use.hatch,
            edgecolor=theme.paper, linewidth=0.5,
        )  # fmt: skip
        if share >= LEAST_LABELLED_SHARE:
            axes.text(
                left + share / 2, row, f"{share * 100:.0f}", ha="center", va="center",
                fontsize=8, color="#14171C",
                bbox={"facecolor": "#FFFFFFD9", "edgecolor": "none", "pad": 1.2},
            )  # fmt: skip
        left += share


def _draw_latency(groups: dict[str, list[Run]], theme: Theme) -> Figure:
    blocks = (("TTFT", q.TTFT), ("TPOT", q.TPOT), ("E2E", q.E2E))
    heights = _heights(groups.values())
    figure = new_figure(sum(heights) + 0.3)
    grid = figure.subplots(len(groups), 3, squeeze=False, height_ratios=heights)
    for panels, (workload, group) in zip(grid, groups.items(), strict=True):
        for axes, (title, block) in zip(panels, blocks, strict=True):
            _name_rows(axes, group)
            axes.set_xlabel(f"{title}, {block['p50'].unit} {_axis_time(group)}")
            _draw_percentiles(axes, group, block, theme)
            axes.set_title(f"{wrapped(workload, 30)}: {title}" if axes is panels[0] else title)
            if axes is not panels[0]:
                axes.tick_params(axis="y", labelleft=False)
    marks: list[Artist] = [
        Line2D([], [], color=theme.muted, marker=mark, linestyle="none", markeredgewidth=1.6)
        for mark in PERCENTILE_MARKS.values()
    ]
    legend_below(figure, marks, list(PERCENTILE_MARKS))
    return figure


def _draw_percentiles(
    axes: Axes, group: Sequence[Run], block: dict[str, Quantity], theme: Theme
) -> None:
    seen: list[float] = []
    for row, run in enumerate(group):
        known = {
            key: value * block[key].scale
            for key in PERCENTILE_MARKS
            if (value := block[key].read(run)) is not None
        }
        if not known:
            say(axes, row, block["p50"].why_undefined(run), theme)
            continue
        colour = backend_colour(run.backend)
        axes.plot(list(known.values()), [row] * len(known), color=colour, linewidth=2, alpha=0.55)
        for key, value in known.items():
            size = 11 if key == "p99" else 6
            axes.plot(
                value, row, PERCENTILE_MARKS[key], color=colour, markersize=size, markeredgewidth=2
            )
        seen += known.values()
    positive = [value for value in seen if value > 0]
    if positive and len(positive) == len(seen) and max(seen) / min(positive) > LOG_FROM_RATIO:
        axes.set_xscale("log")
        axes.set_xlabel(f"{axes.get_xlabel()}, log scale")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    elif seen:
        axes.set_xlim(0, max(seen) * 1.08 or 1)


def _draw_throughput(groups: dict[str, list[Run]], theme: Theme) -> Figure:
    columns = (
        (q.REQUESTS_PER_S, "completed requests/s"),
        (q.OUTPUT_TOKENS_PER_S, "output tokens/s"),
        (q.BATCH_MEAN, "mean batch, requests"),
    )
    heights = _heights(groups.values())
    figure = new_figure(sum(heights))
    grid = figure.subplots(len(groups), 3, squeeze=False, height_ratios=heights)
    for panels, (workload, group) in zip(grid, groups.items(), strict=True):
        for axes, (quantity, label) in zip(panels, columns, strict=True):
            _name_rows(axes, group)
            _draw_bars(axes, group, quantity, theme)
            axes.set_xlabel(f"{label} {_axis_time(group)}" if quantity.modelled else label)
            if axes is panels[0]:
                axes.set_title(wrapped(workload, 36))
            else:
                axes.tick_params(axis="y", labelleft=False)
    return figure


def _draw_bars(axes: Axes, group: Sequence[Run], quantity: Quantity, theme: Theme) -> None:
    values = [quantity.read(run) for run in group]
    top = max((value for value in values if value is not None), default=0.0)
    for row, (run, value) in enumerate(zip(group, values, strict=True)):
        if value is None:
            say(axes, row, quantity.why_undefined(run), theme)
            continue
        axes.barh(row, value, 0.62, color=backend_colour(run.backend))
        axes.annotate(
            quantity.shown(run) or "", (value, row), (4, 0), textcoords="offset points",
            va="center", fontsize=8,
        )  # fmt: skip
    axes.set_xlim(0, top * 1.2 or 1)
    axes.grid(visible=False, axis="y")
