"""What live views on a terminal share: lines drawn anew, notes, a board that hears of it all."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live

from bench.dashboard.board import Board

REFRESH_PER_SECOND = 4


class LiveView:
    """Lines on a terminal while a `with` block lasts; without a terminal they are printed."""

    def __init__(self, console: Console, board: Board) -> None:
        self._console = console
        self._board = board
        self._notes: list[str] = []
        self._live = Live(console=console, refresh_per_second=REFRESH_PER_SECOND, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def note(self, text: str) -> None:
        """A line for the user."""
        self._notes.append(text)
        self._board.note(text)
        if not self._console.is_terminal:
            self._print(text)

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
