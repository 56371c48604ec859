"""What the paper's figures share: a size that stays readable in a column, and bars in pairs, ours
beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bench.paper.figure import Row
from bench.report.palette import LIGHT

WIDTH_IN, DPI = 7.0, 150
PAPER_HATCH = "////"


def column_figure(height_in: float) -> Figure:
    """An empty figure as wide as a page's text."""
    figure = Figure(figsize=(WIDTH_IN, height_in), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def of(rows: Sequence[Row], **wanted: object) -> list[Row]:
    """The rows whose fields are as wanted."""
    return [row for row in rows if all(getattr(row, key) == want for key, want in wanted.items())]


def panels(rows: Sequence[Row]) -> list[str]:
    """The panels that rows belong to, in their order."""
    return list(dict.fromkeys(row.panel for row in rows))


def systems(rows: Sequence[Row]) -> list[str]:
    """The systems of rows, in their order."""
    return list(dict.fromkeys(row.system for row in rows))


def pair_handles(ink: str) -> tuple[list[Patch], list[str]]:
    """Legend entries that tell ours from the paper's."""
    ours = Patch(facecolor=ink, edgecolor=ink)
    paper = Patch(facecolor="none", edgecolor=ink, hatch=PAPER_HATCH)
    return [ours, paper], ["fragbench", "paper"]


def pair_of_bars(
    axes: Axes, place: float, row: Row, colour: str, spread: Sequence[float] = ()
) -> None:
    """Ours and, hatched, the paper's beside it (a range from its low to its high end), with the
    difference in percent of the paper's above. A whisker spans our values in `spread`."""
    wide = 0.38
    top = max(row.ours or 0.0, *spread, 0.0)
    if row.ours is not None:
        axes.bar(place - wide / 2, row.ours, wide, color=colour)
    paper = row.paper
    if paper is not None:
        least = 0.0 if paper.low == paper.high else paper.low
        axes.bar(
            place + wide / 2, paper.high - least, wide, bottom=least, facecolor="none",
            edgecolor=colour, hatch=PAPER_HATCH, linewidth=1.2,
        )  # fmt: skip
        top = max(top, paper.high)
    if spread:
        axes.vlines(place - wide / 2, min(spread), max(spread), color=LIGHT.ink, linewidth=1.5)
    axes.annotate(
        _said(row), (place, top), (0, 3), textcoords="offset points", ha="center", va="bottom",
        fontsize=8,
    )  # fmt: skip


def _said(row: Row) -> str:
    if row.ours is None:
        return "no value"
    if row.paper is None or row.difference is None:
        return f"{row.ours:.3g}"
    if row.paper.low != row.paper.high:
        return f"{row.ours:.3g}\n(paper {row.paper})"
    share = round(100 * row.difference / row.paper.low)
    return f"{row.ours:.3g}\n({share:+d} %)" if share else f"{row.ours:.3g}\n(0 %)"
