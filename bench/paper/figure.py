"""What a published figure is here: a table of our values beside the paper's, and a drawing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from matplotlib.figure import Figure as Drawing

if TYPE_CHECKING:
    from bench.paper.task import Task


@dataclass(frozen=True, slots=True)
class Published:
    """A number that the paper gives in its text or on a figure's labels; a range where it gives
    two, without a low end where it only says "up to". `where` is the place in the paper."""

    low: float
    high: float
    where: str

    def __str__(self) -> str:
        one = self.low in (self.high, -math.inf)
        return f"{self.high:g}" if one else f"{self.low:g}-{self.high:g}"

    def difference(self, ours: float) -> float | None:
        """How far `ours` is above (or, negative, below) the number; 0 inside a range, None where
        it is no more than "up to" allows."""
        if self.low == -math.inf and ours <= self.high:
            return None
        return ours - min(max(ours, self.low), self.high)


def published(where: str, low: float, high: float | None = None) -> Published:
    """One number, or the range from `low` to `high`."""
    return Published(low, low if high is None else high, where)


def at_most(where: str, high: float) -> Published:
    """What the paper says is reached at best."""
    return Published(-math.inf, high, where)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a figure's table. `x` is the place on the figure's axis and `x_is` what that is;
    `ours` is None where our run gives no such number, and `note` says why."""

    panel: str
    system: str
    quantity: str
    unit: str
    ours: float | None
    x: float | None = None
    x_is: str = ""
    paper: Published | None = None
    lengths: str = ""
    note: str = ""

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, in `unit`; None where either is missing or within a bound."""
        if self.ours is None or self.paper is None:
            return None
        return self.paper.difference(self.ours)


class PaperFigure(Protocol):
    """One figure. `title` says what it shows, for the list that `--help` prints; `files` names
    what a user's lengths or trace (`path=`) stand in for, None where nothing."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def files(self) -> str | None: ...

    def rows(self, task: Task) -> list[Row]:
        """Makes the figure's runs and reads its table off them."""
        ...

    def draw(self, rows: Sequence[Row]) -> Drawing:
        """The figure of these rows, in the style that is in force."""
        ...
