"""Draws exercise b: maps of segments under a setting, and what an allocation costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from bench.exercise.fragment_drawing import draw_map, legend
from bench.exercise.wording import amount, digits
from bench.report.drawing import legend_below, new_figure

COLOURS = {"default": "#D55E00", "with": "#0072B2"}


class MapOf(NamedTuple):
    """A title, and the segments below it."""

    title: str
    shown: Sequence[Sequence[Sequence[Any]]]


def draw(maps: Sequence[MapOf], costs: Mapping[str, Any], conf: str) -> Figure:
    """Above, memory under `conf`; below, the costs of a new allocation both ways."""
    figure = new_figure(6.4)
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.3, 1))
    above, below = parts
    above.suptitle(f"the tensors and frees of exercise a under {conf}", fontsize=9)
    for axes, each in zip(above.subplots(1, len(maps)), maps, strict=True):
        draw_map(axes, each.shown, each.title)
    legend(above)
    panels = below.subplots(1, len(VALUES))
    for axes, (title, value) in zip(panels, VALUES.items(), strict=True):
        _bars(axes, costs, title, value)
    legend_below(below, panels[0].containers, ["default", conf])
    return figure


def _calls(cost: Mapping[str, Any]) -> float:
    return float(sum(cost["driver_calls"].values()))


def _driver_us(cost: Mapping[str, Any]) -> float:
    return float(cost["modelled_driver_s"] or 0) * 1e6


def _host_us(cost: Mapping[str, Any]) -> float:
    return float(cost["host_s"]) * 1e6


VALUES: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "a new allocation:\ndriver calls": _calls,
    "a new allocation:\nus of the driver, modelled": _driver_us,
    "a new allocation:\nus of the host, measured": _host_us,
}


def _bars(
    axes: Axes, costs: Mapping[str, Any], title: str, value: Callable[[Mapping[str, Any]], float]
) -> None:
    """A pair of bars a size, each with its number; on a logarithmic scale, so none for 0."""
    for offset, (name, colour) in zip((-0.2, 0.2), COLOURS.items(), strict=True):
        heights = [value(cost["new"]) for cost in costs[name]]
        places = [place + offset for place in range(len(heights))]
        bars = axes.bar(places, heights, 0.38, color=colour)
        axes.bar_label(bars, [digits(h) if h else "-" for h in heights], fontsize=7, padding=1)
    sizes = [amount(cost["bytes"]) for cost in costs["default"]]
    axes.set_xticks(range(len(sizes)), sizes, fontsize=7.5)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=6))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda number, _: f"{number:,g}")
    axes.set_ylabel("logarithmic", fontsize=7.5)
    axes.margins(y=0.2)
    axes.set_title(title, fontsize=9)
