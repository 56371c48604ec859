"""Draws what each source of fragmentation costs."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from bench.paper.drawing import column_figure, of, systems
from bench.paper.figure import Row
from bench.paper.sources_cases import CALLS, CASES, MEAN, PEAK, PEAKS, RANK, SETTINGS, Setting
from bench.report.drawing import legend_below
from bench.report.palette import LIGHT

FAILED = "failed: "
"""What the note of a run that died has before its cause."""


def draw(rows: Sequence[Row]) -> Drawing:
    """Reserved - allocated, what its peak cost and driver calls, a line a case, a dot a setting of
    the allocator."""
    names = _by_what_is_added(rows)
    figure = column_figure(0.36 * len(names) + 1.3)
    left, middle, right = figure.subplots(1, 3, sharey=True, width_ratios=(3, 2, 2))
    for place, label in enumerate(names):
        for offset, setting in zip((-0.17, 0.17), SETTINGS, strict=True):
            mine = of(rows, system=label, panel=setting.panel)
            _gap(left, place + offset, mine, setting)
            _dot(middle, place + offset, _value(mine, PEAKS), setting)
            _dot(right, place + offset, _value(mine, CALLS), setting)
    left.set_yticks(range(len(names)), [_with_folklore(label) for label in names], fontsize=7.5)
    left.set_ylim(len(names) - 0.5, -0.5)
    _scale(left, (0.1, 1, 10, 100), "reserved - allocated, GiB:\nmean over time, | peak")
    _scale(middle, (0.01, 0.1, 1, 10), "peak reserved -\npeak allocated, GiB")
    _scale(right, (1, 100, 10_000), "driver calls")
    handles = [_dot(left, 0, None, setting) for setting in SETTINGS]
    legend_below(figure, handles, [setting.panel for setting in SETTINGS])
    return figure


def _by_what_is_added(rows: Sequence[Row]) -> list[str]:
    """Labels, those first that add most under the allocator's default, references last."""
    default = of(rows, panel=SETTINGS[0].panel, quantity=RANK)
    ranks = {each.system: each.ours for each in default if each.ours is not None}
    return sorted(systems(rows), key=lambda label: ranks.get(label, len(CASES)))


def _with_folklore(label: str) -> str:
    folklore = next(case.folklore for case in CASES if case.label == label)
    return f"{label}\nfolklore: {folklore}" if folklore else f"{label}\n(for comparison)"


def _value(rows: Sequence[Row], quantity: str) -> float | None:
    return next((each.ours for each in rows if each.quantity == quantity), None)


def _scale(axes: Axes, ticks: Sequence[float], title: str) -> None:
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks], fontsize=7.5)
    axes.set_xlim(ticks[0] / 2, None)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_title(title, fontsize=8)


def _gap(axes: Axes, place: float, rows: Sequence[Row], setting: Setting) -> None:
    """A dot at the mean over time, and a line from it to the peak."""
    mean, peak = _value(rows, MEAN), _value(rows, PEAK)
    _dot(axes, place, mean, setting)
    if mean and peak:
        axes.plot([mean, peak], [place, place], color=setting.colour, linewidth=1)
        axes.plot([peak], [place], color=setting.colour, marker="|", markersize=7)
    if peak and any(FAILED in each.note for each in rows):
        axes.annotate(
            "died", (peak, place), (4, 0), textcoords="offset points", va="center", fontsize=6.5,
            color=setting.colour,
        )  # fmt: skip


def _dot(axes: Axes, place: float, value: float | None, setting: Setting) -> Line2D:
    """A dot with its number; none where there is none, as a logarithm has no 0."""
    xs, ys = ([value], [place]) if value else ([], [])
    (dot,) = axes.plot(
        xs, ys, color=setting.colour, marker=setting.marker, markersize=5, linestyle="none"
    )
    if value:
        axes.annotate(
            f"{value:,.0f}" if value >= 100 else f"{value:.2g}", (value, place), (-5, 0),
            textcoords="offset points", ha="right", va="center", fontsize=6.5, color=LIGHT.ink,
        )  # fmt: skip
    return dot
