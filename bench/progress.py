"""The live view of a matrix: done, running, failed, time left."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

REFRESH_PER_SECOND = 4


class ProgressView:
    """Follows cells on a terminal; without one it prints a line as each ends."""

    def __init__(self, console: Console, total: int, done: int) -> None:
        self._console = console
        self._total = total
        self._done = done
        self._failed = 0
        self._running: dict[str, tuple[float, Mapping[str, Any]]] = {}
        self._notes: list[str] = []
        self._started = time.monotonic()
        self._live = Live(console=console, refresh_per_second=REFRESH_PER_SECOND, transient=True)

    def __enter__(self) -> ProgressView:
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

    def started(self, name: str) -> None:
        """A cell began."""
        self._running[name] = time.monotonic(), {}

    def progress(self, name: str, data: Mapping[str, Any]) -> None:
        """A running cell said where it is."""
        began, _ = self._running[name]
        self._running[name] = began, data

    def finished(self, name: str, status: str | None) -> None:
        """A cell ended."""
        began, _ = self._running.pop(name)
        self._done += 1
        self._failed += status != "completed"
        if not self._console.is_terminal:
            seconds = time.monotonic() - began
            self._console.print(
                f"[{self._done}/{self._total}] {name}: {status} in {seconds:.1f} s",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )

    def note(self, text: str) -> None:
        """A line for the user."""
        self._notes.append(text)
        if not self._console.is_terminal:
            self._console.print(text, markup=False)

    def tick(self) -> None:
        """Redraws."""
        if self._console.is_terminal:
            self._live.update(Group(*self._lines()))

    def _lines(self) -> list[Text]:
        head = (
            f"{self._done} of {self._total} done, {len(self._running)} running, "
            f"{self._failed} failed, {self._time_left()}"
        )
        lines = [Text(head, style="bold")]
        for name, (began, data) in self._running.items():
            lines.append(Text(f"  {name}: {_state(time.monotonic() - began, data)}"))
        return lines + [Text(note, style="yellow") for note in self._notes]

    def _time_left(self) -> str:
        if not self._done:
            return "time left unknown"
        elapsed = time.monotonic() - self._started
        left = elapsed / self._done * (self._total - self._done)
        return f"about {left:.0f} s left"


def _state(seconds: float, data: Mapping[str, Any]) -> str:
    if not data:
        return f"starting, {seconds:.0f} s"
    return (
        f"{data['simulated_s']:,.0f} s simulated in {seconds:.0f} s, {data['ended']:,} requests "
        f"ended, {data['running']} running, {data['waiting']} waiting"
    )
