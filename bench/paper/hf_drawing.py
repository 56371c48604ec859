"""The drawing of Hugging Face's caches beside ours: a panel a cache and allocator setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.typing import LineStyleType

from bench.paper.drawing import column_figure, of, panels
from bench.paper.figure import Row
from bench.paper.hf_differences import Steps
from bench.report.palette import LIGHT

GIB = 1 << 30
HUGGING_FACE = "Hugging Face"
CONTIGUOUS = "contiguous"
WHOLE_BATCH = "contiguous, a batch as one sequence"
CONCATENATED = "our decoder, concatenating a batch's K and V"
COLOURS = {"allocated": "#0072B2", "reserved": "#D55E00"}
LINES: dict[str, LineStyleType] = {CONTIGUOUS: "--", CONCATENATED: ":", WHOLE_BATCH: "-."}
BROAD_PT, PALE = 3.5, 0.35


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve(Row):
    """A quantity at every step; `ours` is the highest."""

    values: tuple[float, ...]
    colour: str


def curves(side: Steps, panel: str, lengths: str, version: str) -> list[Curve]:
    """What is drawn of a system."""
    return [_curve(side, quantity, panel, lengths, version) for quantity in COLOURS]


def _curve(side: Steps, quantity: str, panel: str, lengths: str, version: str) -> Curve:
    values = tuple(float(value) for value in side.of(quantity) / GIB)
    return Curve(
        panel=panel, system=side.system, quantity=f"{quantity}, highest of all steps", unit="GiB",
        ours=max(values), values=values, colour=COLOURS[quantity], lengths=lengths,
        note=f"transformers {version}; steps.csv has every step",
    )  # fmt: skip


def draw(rows: Sequence[Row]) -> Drawing:
    """Memory by step, a row of panels a cache."""
    figure = column_figure(6.2)
    grid = figure.subplots(2, 2, sharex=True)
    for axes, panel in zip(grid.flat, panels(rows), strict=True):
        for row in of(rows, panel=panel):
            if isinstance(row, Curve):
                _line(axes, row)
        axes.set_ylim(0, None)
        axes.set_title(panel.replace(", ", "\n"), fontsize=9)
    for axes in grid[:, 0]:
        axes.set_ylabel("GiB")
    for axes in grid[-1]:
        axes.set_xlabel("step, of one batch after another")
    _legend(figure)
    return figure


def _line(axes: Axes, curve: Curve) -> None:
    """Theirs is broad and pale, so that ours is seen on it."""
    if curve.system == HUGGING_FACE:
        axes.plot(curve.values, color=curve.colour, linewidth=BROAD_PT, alpha=PALE)
    elif curve.system in LINES:
        axes.plot(curve.values, linestyle=LINES[curve.system], color=curve.colour, linewidth=1.2)


def _legend(figure: Drawing) -> None:
    handles = [
        *(Patch(facecolor=colour) for colour in COLOURS.values()),
        Line2D([], [], color=LIGHT.ink, linewidth=BROAD_PT, alpha=PALE),
        *(Line2D([], [], color=LIGHT.ink, linestyle=line) for line in LINES.values()),
    ]
    names = [*COLOURS, HUGGING_FACE, *LINES]
    figure.legend(handles, names, loc="outside lower center", ncols=2, handlelength=2.6)
