"""Draws memory at five points: a bar of what is reserved, and in it what is allocated."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bench.paper.drawing import column_figure, of, panels
from bench.paper.figure import Row
from bench.report.drawing import legend_below
from bench.report.palette import LIGHT

ALLOCATED, RESERVED, REQUESTED, FREE = "#0072B2", "#E3E6EA", "#1D2129", "#D55E00"
REFUSED = "were refused"


def draw(rows: Sequence[Row], points: Sequence[str], quantities: Sequence[str]) -> Drawing:
    """A panel a system, a bar a point; `quantities` are requested, allocated, reserved and the
    largest free block."""
    figure = column_figure(3.9)
    grid = figure.subplots(1, len(panels(rows)), sharey=True)
    for axes, panel in zip(grid, panels(rows), strict=True):
        for place, point in enumerate(points):
            _bar(axes, place, of(rows, panel=panel, system=point), quantities)
        axes.set_xticks(range(len(points)), [point.split()[0] for point in points])
        axes.set_title(panel.replace(", ", ",\n"), fontsize=9)
        axes.grid(visible=False, axis="x")
        axes.margins(y=0.12)
    grid[0].set_ylabel("GiB")
    middle = grid[len(grid) // 2]
    middle.set_xlabel("\n".join(("; ".join(points[:2]), "; ".join(points[2:]))), fontsize=7.5)
    legend_below(figure, _handles(), ["reserved", "allocated", "requested", "largest free block"])
    return figure


def _bar(axes: Axes, place: int, rows: Sequence[Row], quantities: Sequence[str]) -> None:
    values = {row.quantity: row.ours for row in rows}
    requested, allocated, reserved, free = (values[quantity] for quantity in quantities)
    if requested is None or allocated is None or reserved is None or free is None:
        return
    axes.bar(place, reserved, 0.7, color=RESERVED, edgecolor=LIGHT.muted, linewidth=0.7)
    axes.bar(place, allocated, 0.7, color=ALLOCATED)
    axes.plot([place - 0.35, place + 0.35], [requested] * 2, color=REQUESTED, linewidth=1.2)
    axes.plot([place], [free], color=FREE, marker="D", markersize=5, linestyle="none")
    if any(REFUSED in row.note for row in rows):
        axes.annotate(
            "refused", (place, reserved), (0, 3), textcoords="offset points", ha="center",
            fontsize=7, color=FREE,
        )  # fmt: skip


def _handles() -> list[Patch | Line2D]:
    return [
        Patch(facecolor=RESERVED, edgecolor=LIGHT.muted),
        Patch(facecolor=ALLOCATED),
        Line2D([], [], color=REQUESTED, linewidth=1.2),
        Line2D([], [], color=FREE, marker="D", markersize=5, linestyle="none"),
    ]
