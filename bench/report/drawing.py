"""What all figures share: paper, fonts, empty panels, and PNG and SVG out.

Figures are drawn without pyplot, so nothing here depends on a display or on global state.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, SubFigure

from bench.report.palette import LIGHT, Theme
from bench.report.sheet import sheet

HANDLE_CHARACTERS = 7
"""Of a legend's line: how many a name's mark and the space around it take."""

FONTS = "'DejaVu Sans', Verdana, sans-serif"
"""Verdana is as wide, where the first is missing."""

THEME_COLOURS = {LIGHT.paper: "--paper", LIGHT.ink: "--ink", LIGHT.muted: "--muted",
                 LIGHT.grid: "--line"}  # fmt: skip
"""Of a figure, and what the page's style sheet (report.css) calls them."""

_MARK = "backend--"


@dataclass(frozen=True)
class Picture:
    """One figure. `name` is its file name without an ending; `text` says in words what it shows,
    for those who cannot see it. `png` and `svg` are files of their own; `inline` is the SVG as part
    of a page, in the colours of the page's theme. `pdf` is there where it is drawn for print."""

    name: str
    caption: str
    text: str
    png: bytes
    svg: str
    inline: str
    pdf: bytes | None = None


def render(name: str, caption: str, text: str, draw: Callable[[], Figure]) -> Picture:
    """Draws a figure once, for all of its forms."""
    with style(LIGHT), mpl.rc_context({"svg.hashsalt": name}):
        figure = draw()
        figure.draw_without_rendering()
        figure.set_layout_engine(None)  # it is laid out: once for all forms
        drawn = svg(figure)
        printed = pdf(figure) if sheet().for_print else None
        return Picture(name, caption, text, png(figure), drawn, _inline(drawn), printed)


@contextmanager
def style(theme: Theme) -> Iterator[None]:
    """Matplotlib's settings for our figures, in force inside the block."""
    settings: Any = {
        "font.family": "DejaVu Sans",
        "font.size": sheet().points,
        "axes.titlesize": sheet().points + 1,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelsize": sheet().points,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.grid": True,
        "grid.linewidth": 0.7,
        "legend.frameon": False,
        "hatch.linewidth": 0.6,
        "text.parse_math": False,
        "svg.fonttype": "path" if sheet().for_print else "none",
        "pdf.fonttype": 42,
        "figure.facecolor": theme.paper,
        "axes.facecolor": theme.paper,
        "savefig.facecolor": theme.paper,
        "text.color": theme.ink,
        "axes.labelcolor": theme.ink,
        "axes.titlecolor": theme.ink,
        "axes.edgecolor": theme.muted,
        "xtick.color": theme.muted,
        "ytick.color": theme.muted,
        "xtick.labelcolor": theme.ink,
        "ytick.labelcolor": theme.ink,
        "grid.color": theme.grid,
    }
    with mpl.rc_context(settings):
        yield


def new_figure(height_in: float) -> Figure:
    """An empty figure of the sheet's width."""
    size = sheet().width_in, height_in
    figure = Figure(figsize=size, dpi=sheet().dpi, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def new_panels(count: int, height_in: float, *, sharey: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure with panels of one height, as many side by side as the sheet has room for."""
    columns = min(count, sheet().panels)
    rows = ceil(count / columns)
    figure = new_figure(height_in * rows)
    return figure, list(figure.subplots(rows, columns, squeeze=False, sharey=sharey).flat)


def legend_below(
    figure: Figure | SubFigure, handles: Sequence[Artist], names: Sequence[str]
) -> None:
    """A legend in a band of its own under the panels, where it can hide nothing: in one row, or two
    from eight names on; in more where long names would not fit."""
    rows = 1 if len(names) <= 7 else 2
    columns = ceil(len(names) / rows)
    widths = [len(name) + HANDLE_CHARACTERS for name in names]
    if sum(widths) > rows * sheet().line_characters:
        columns = max(1, min(columns, sheet().line_characters // max(widths)))
    figure.legend(
        list(handles), list(names), loc="outside lower center", ncols=columns,
        handlelength=2.2, columnspacing=1.6,
    )  # fmt: skip


def say(axes: Axes, y: float, text: str) -> Artist:
    """Puts `text` where a row of a bar chart has no bar."""
    return axes.text(
        0.01, y, text, transform=axes.get_yaxis_transform(), va="center", color=LIGHT.muted,
        style="italic", fontsize=sheet().small_points,
    )  # fmt: skip


def blank(axes: Axes, text: str, theme: Theme) -> None:
    """A panel with nothing to show says why."""
    axes.text(
        0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=theme.muted,
        style="italic", wrap=True,
    )  # fmt: skip


def png(figure: Figure) -> bytes:
    """The figure as PNG, the same bytes for the same content."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # A name may hold letters that the font lacks: a box in its place is no reason to warn.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def svg(figure: Figure) -> str:
    """The figure as SVG, the same text for the same content."""
    buffer = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue().replace("'DejaVu Sans'", FONTS)


def pdf(figure: Figure) -> bytes:
    """The figure as PDF, the same bytes for the same content."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        undated = {"CreationDate": None, "Creator": None, "Producer": None}
        figure.savefig(buffer, format="pdf", metadata=undated)
    return buffer.getvalue()


def mark(artists: Iterable[Artist], backend: str) -> None:
    """Says of which backend artists are, so that a page can hide them."""
    for artist in artists:
        artist.set_gid(f"{_MARK}{backend}")


def _inline(drawn: str) -> str:
    """An SVG file as an element of a page: without its prologue, backends told apart, and paper and
    ink in the colours that the page's style sheet gives them."""
    element = drawn[drawn.index("<svg") :]
    element = re.sub(rf'<g id="{_MARK}([^"]*)">', r'<g data-backend="\1">', element)
    element = re.sub(r'<g id="[^"]*">', "<g>", element)
    for colour, variable in THEME_COLOURS.items():
        element = element.replace(colour.lower(), f"var({variable})")
    return element
