"""The live view of a matrix: done, running, failed, time left."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.text import Text

from bench.dashboard.board import Board
from bench.durations import spoken
from bench.live_view import LiveView

LEAST_SHARE = 0.02
"""Of the work; time left is not guessed from less."""


class ProgressView(LiveView):
    """Follows cells on a terminal; without one it prints a line as each ends.

    `before` has the statuses of the cells that ended before this view began; `board` hears of all
    that this view does.
    """

    def __init__(
        self,
        console: Console,
        total: int,
        before: Sequence[str | None],
        board: Board | None = None,
    ) -> None:
        super().__init__(console, board or Board("", total))
        self._total = total
        self._done = len(before)
        self._done_before = len(before)
        self._failed = sum(status == "failed" for status in before)
        self._running: dict[str, tuple[float, Mapping[str, Any]]] = {}
        self._started = time.monotonic()

    def started(self, name: str) -> None:
        """A cell began."""
        self._running[name] = time.monotonic(), {}
        self._board.started(name)

    def progress(self, name: str, data: Mapping[str, Any]) -> None:
        """A running cell said where it is."""
        began, _ = self._running[name]
        self._running[name] = began, data
        self._board.progress(name, data["simulated_s"], data)

    def finished(self, name: str, status: str | None, cause: str | None) -> None:
        """A cell ended."""
        began, _ = self._running.pop(name)
        self._board.finished(name, status, cause)
        self._done += 1
        self._failed += status == "failed"
        if self._total == 1 or (self._console.is_terminal and status == "completed"):
            return
        seconds = time.monotonic() - began
        text = f"[{self._done}/{self._total}] {name}: {status} in {seconds:.1f} s"
        self._print(text if cause is None else f"{text}: {cause}")

    def tick(self) -> None:
        """Redraws."""
        if self._console.is_terminal:
            self._live.update(Group(*self._lines()))

    def _lines(self) -> list[Text]:
        head = (
            f"{self._done} of {self._total} done, {len(self._running)} running, "
            f"{self._failed} failed, {self._time_left()}"
        )
        lines = [_line(head, "bold")]
        for name, (began, data) in self._running.items():
            lines.append(_line(f"  {name}: {_state(time.monotonic() - began, data)}"))
        return lines + [_line(note, "yellow") for note in self._notes]

    def _time_left(self) -> str:
        """From the share of the work that is done, and no less than the slowest cell needs."""
        now = time.monotonic()
        shares = {name: _share(data) for name, (_, data) in self._running.items()}
        ended = self._done - self._done_before + sum(shares.values())
        if ended < LEAST_SHARE * max(1, len(shares)):
            return "time left unknown"
        left = (now - self._started) / ended * (self._total - self._done_before - ended)
        own = [
            (now - began) / shares[name] * (1 - shares[name])
            for name, (began, _) in self._running.items()
            if shares[name] >= LEAST_SHARE
        ]
        return f"about {spoken(max([left, *own]))} left"


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _share(data: Mapping[str, Any]) -> float:
    """How much of a cell is done, 0 to 1; 0 while that is not known."""
    expected = data.get("expected")
    return min(1.0, data["ended"] / expected) if expected else 0.0


def _state(seconds: float, data: Mapping[str, Any]) -> str:
    if not data:
        return f"starting, {seconds:.0f} s"
    of = f" of {data['expected']:,}" if data["expected"] else ""
    return (
        f"{data['ended']:,}{of} requests ended, {data['running']} running, {data['waiting']:,} "
        f"waiting; {spoken(data['simulated_s'])} simulated in {seconds:.0f} s"
    )
