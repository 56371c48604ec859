"""What figures are drawn on: the report's page, or a sheet of a publication."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

LEAST_POINTS = 7.0
"""Of any letter."""
CHARACTERS_AN_INCH = 13.0
"""Of the font at 9 points, on average."""


@dataclass(frozen=True)
class Sheet:
    """`points` is the size of letters, those of numbers within a figure are a point smaller;
    `panels` is how many fit side by side. With `for_print` letters are outlines, which look the
    same everywhere, and there is a PDF too."""

    width_in: float = 10.0
    dpi: int = 140
    points: float = 9.0
    panels: int = 3
    for_print: bool = False

    @property
    def small_points(self) -> float:
        return max(LEAST_POINTS, self.points - 1)

    @property
    def curves_height_in(self) -> float:
        """Of a panel with curves."""
        return min(3.3, 0.75 * self.width_in)

    @property
    def line_characters(self) -> int:
        """How many letters fit into the width."""
        return int(self.width_in * CHARACTERS_AN_INCH * 9 / self.points)


SCREEN = Sheet()
_sheet: ContextVar[Sheet] = ContextVar("sheet", default=SCREEN)


def sheet() -> Sheet:
    """What figures are drawn on now."""
    return _sheet.get()


@contextmanager
def drawn_on(chosen: Sheet) -> Iterator[None]:
    """Figures are drawn on this sheet inside the block."""
    token = _sheet.set(chosen)
    try:
        yield
    finally:
        _sheet.reset(token)
