"""Draws what each source of fragmentation costs."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from bench.paper.drawing import column_figure, of, systems
from bench.paper.figure import Row
from bench.paper.sources_cases import (
    CALLS,
    CASES,
    LABELS,
    MEAN,
    PEAK,
    PEAKS,
    RANK,
    SETTINGS,
    Setting,
)
from bench.report.drawing import legend_below
from bench.report.palette import LIGHT

FAILED = "failed: "
"""What the note of a run that died has before its cause."""


def draw(rows: Sequence[Row]) -> Drawing:
    """What a peak cost beside the reference's, reserved - allocated and driver calls, a line a
    case, a dot a setting of the allocator."""
    names = _by_what_is_added(rows)
    figure = column_figure(0.36 * len(names) + 1.3)
    left, middle, right = figure.subplots(1, 3, sharey=True, width_ratios=(3, 3, 2))
    for place, label in enumerate(names):
        for offset, setting in zip((-0.17, 0.17), SETTINGS, strict=True):
            panel = of(rows, panel=setting.panel)
            mine = of(panel, system=label)
            its = of(panel, system=_reference(label))
            peaks = _value(mine, PEAKS)
            _span(left, place + offset, peaks, _value(its, PEAKS), setting, _died(mine))
            _span(middle, place + offset, _value(mine, MEAN), _value(mine, PEAK), setting)
            _dot(right, place + offset, _value(mine, CALLS), setting)
    left.set_yticks(range(len(names)), [_with_folklore(label) for label in names], fontsize=7.5)
    left.set_ylim(len(names) - 0.5, -0.5)
    _scale(left, (0.01, 0.1, 1, 10), "peak reserved -\npeak allocated, GiB\n(| without the cause)")
    _scale(middle, (0.1, 1, 10, 100), "reserved - allocated,\nGiB, mean over time\n(| peak)")
    _scale(right, (1, 100, 10_000), "driver calls")
    handles = [_dot(left, 0, None, setting) for setting in SETTINGS]
    legend_below(figure, handles, [setting.panel for setting in SETTINGS])
    return figure


def _by_what_is_added(rows: Sequence[Row]) -> list[str]:
    """Labels, those first that add most under the allocator's default, references last."""
    default = of(rows, panel=SETTINGS[0].panel, quantity=RANK)
    ranks = {each.system: each.ours for each in default if each.ours is not None}
    return sorted(systems(rows), key=lambda label: ranks.get(label, len(CASES)))


def _reference(label: str) -> str | None:
    reference = next(case.reference for case in CASES if case.label == label)
    return LABELS[reference] if reference else None


def _with_folklore(label: str) -> str:
    folklore = next(case.folklore for case in CASES if case.label == label)
    return f"{label}\nfolklore: {folklore}" if folklore else f"{label}\n(for comparison)"


def _value(rows: Sequence[Row], quantity: str) -> float | None:
    return next((each.ours for each in rows if each.quantity == quantity), None)


def _scale(axes: Axes, ticks: Sequence[float], title: str) -> None:
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks], fontsize=7.5)
    axes.set_xlim(ticks[0] / 2, ticks[-1] * 4)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_title(title, fontsize=8)


def _span(
    axes: Axes,
    place: float,
    value: float | None,
    end: float | None,
    setting: Setting,
    also: str = "",
) -> None:
    """A dot at a value, and a line from it to another; numbers where the line is not."""
    _dot(axes, place, value, setting, also, left=not (value and end and end < value))
    if value and end:
        axes.plot([value, end], [place, place], color=setting.colour, linewidth=1)
        axes.plot([end], [place], color=setting.colour, marker="|", markersize=7)


def _died(rows: Sequence[Row]) -> str:
    return " (died)" if any(FAILED in each.note for each in rows) else ""


def _dot(
    axes: Axes,
    place: float,
    value: float | None,
    setting: Setting,
    also: str = "",
    *,
    left: bool = True,
) -> Line2D:
    """A dot with its number; none where there is none, as a logarithm has no 0."""
    xs, ys = ([value], [place]) if value else ([], [])
    (dot,) = axes.plot(
        xs, ys, color=setting.colour, marker=setting.marker, markersize=5, linestyle="none"
    )
    if value:
        number = f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
        axes.annotate(
            number + also, (value, place), (-5 if left else 5, 0), textcoords="offset points",
            ha="right" if left else "left", va="center", fontsize=6.5, color=LIGHT.ink,
        )  # fmt: skip
    return dot
