"""What is known of each run now, and how it came there: the state behind the live page."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_POINTS = 240
"""Of a run's curves; when there are more, every second one goes."""
CURVES = ("running", "waiting", "completed", "kv_held_share", "reserved_bytes", "allocated_bytes")


@dataclass
class _Cell:
    began_s: float
    status: str = "running"
    cause: str | None = None
    ended_s: float | None = None
    now: Mapping[str, Any] = field(default_factory=dict)
    points: list[list[Any]] = field(default_factory=list)
    every: int = 1
    heard: int = 0


class Board:
    """Follows runs as a view on a terminal does; what a browser asks for is read by another
    thread."""

    def __init__(self, title: str, total: int, duration_s: float | None = None) -> None:
        self._lock = threading.Lock()
        self._title, self._total, self._duration_s = title, total, duration_s
        self._cells: dict[str, _Cell] = {}
        self._notes: list[str] = []
        self._verdict: list[str] = []
        self._began_s = time.monotonic()
        self.ended = 0

    def started(self, name: str) -> None:
        """A run began, or a soak's next segment."""
        with self._lock:
            self._cells[name] = _Cell(time.monotonic())

    def progress(self, name: str, at_s: float, data: Mapping[str, Any]) -> None:
        """A run is at `at_s` on its clock."""
        with self._lock:
            cell = self._cells[name]
            cell.now = {**data, "at_s": at_s}
            cell.heard += 1
            if cell.heard % cell.every:
                return
            cell.points.append([at_s, *(data.get(key) for key in CURVES)])
            if len(cell.points) > MOST_POINTS:
                cell.points, cell.every = cell.points[1::2], 2 * cell.every

    def finished(self, name: str, status: str | None, cause: str | None) -> None:
        """A run ended."""
        with self._lock:
            cell = self._cells[name]
            cell.status, cell.cause, cell.ended_s = str(status), cause, time.monotonic()
            cell.points, cell.now = [], {}  # it is named from now on
            self.ended += 1

    def note(self, text: str) -> None:
        """A line for the user."""
        with self._lock:
            self._notes.append(text)

    def verdict(self, text: str) -> None:
        """What the samples so far say, instead of what they said before."""
        with self._lock:
            self._verdict = [text]

    def state(self) -> dict[str, Any]:
        """All of it, for JSON. Ended runs are named, without their curves."""
        now = time.monotonic()
        with self._lock:
            running = {name: cell for name, cell in self._cells.items() if cell.ended_s is None}
            return {
                "title": self._title, "total": self._total, "ended": self.ended,
                "wall_s": now - self._began_s, "duration_s": self._duration_s,
                "notes": self._verdict + self._notes[-5:], "curves": ["at_s", *CURVES],
                "running": [
                    {"name": name, "wall_s": now - cell.began_s, "now": cell.now,
                     "points": list(cell.points)}
                    for name, cell in running.items()
                ],
                "done": [
                    {"name": name, "status": cell.status, "cause": cell.cause,
                     "wall_s": cell.ended_s - cell.began_s}
                    for name, cell in self._cells.items() if cell.ended_s is not None
                ],
            }  # fmt: skip
