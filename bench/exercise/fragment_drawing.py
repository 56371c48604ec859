"""Draws segments as a map: addresses run along rows, from the top left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Patch

from bench.exercise.pieces import ALLOCATED, RELEASABLE, STUCK
from bench.report.drawing import legend_below
from bench.report.palette import LIGHT

MIB = 1 << 20
ROW_BYTES, ROWS = 128 * MIB, 16
COLOURS = {ALLOCATED: "#0072B2", STUCK: "#D55E00", RELEASABLE: "#E3E6EA"}
LABELS = {
    ALLOCATED: "allocated", STUCK: "free, and cannot go back to the driver",
    RELEASABLE: "free, and can go back",
}  # fmt: skip

Span = tuple[float, float, int, str]
"""Start within a row and width in MiB, the row, and what it is."""


def draw_map(axes: Axes, segments: Sequence[Sequence[Sequence[Any]]], title: str) -> None:
    """The first 2 GiB of segments, each a list of [bytes, kind]."""
    spans = list(_spans(piece for segment in segments for piece in segment))
    for kind, colour in COLOURS.items():
        mine = [span for span in spans if span[3] == kind]
        axes.barh(
            [row for _, _, row, _ in mine], [width for _, width, _, _ in mine], 0.8,
            [start for start, _, _, _ in mine], color=colour, linewidth=0,
        )  # fmt: skip
    _borders(axes, segments)
    axes.set_xlim(0, ROW_BYTES / MIB)
    axes.set_ylim(ROWS - 0.4, -0.6)
    axes.set_yticks(range(0, ROWS, 4), [f"{row * ROW_BYTES // MIB:,}" for row in range(0, ROWS, 4)])
    axes.set_xticks([0, 32, 64, 96, 128])
    axes.grid(visible=False)
    axes.set_xlabel("MiB within a row")
    axes.set_ylabel("MiB of all segments")
    axes.set_title(title, fontsize=9)


def _spans(pieces: Iterable[Sequence[Any]]) -> Iterator[Span]:
    """Pieces laid end to end and cut at the ends of rows."""
    position = 0
    for nbytes, kind in pieces:
        end = min(position + nbytes, ROWS * ROW_BYTES)
        while position < end:
            row, start = divmod(position, ROW_BYTES)
            width = min(end - position, ROW_BYTES - start)
            yield start / MIB, width / MIB, row, kind
            position += width


def _borders(axes: Axes, segments: Sequence[Sequence[Sequence[Any]]]) -> None:
    """A line where a segment begins."""
    position = 0
    for segment in segments:
        row, start = divmod(position, ROW_BYTES)
        if row < ROWS:
            axes.plot([start / MIB] * 2, [row - 0.45, row + 0.45], color=LIGHT.ink, linewidth=0.7)
        position += sum(nbytes for nbytes, _ in segment)


def legend(figure: Figure | SubFigure) -> None:
    """Below all maps."""
    handles = [Patch(facecolor=colour) for colour in COLOURS.values()]
    legend_below(figure, handles, [LABELS[kind] for kind in COLOURS])
