"""What a soak looks like while it runs: a few lines on a terminal, else one now and then."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.text import Text

from bench.dashboard.board import Board
from bench.durations import spoken
from bench.live_view import LiveView
from bench.soak.state import Soak

RATE_OVER_S = 10.0
"""Of wall time: what rates are averages over."""
PLAIN_EVERY_S = 30.0
GIB = 1 << 30
BOARD_NAME = "soak"
UNKNOWN = "-"


class _Moment(NamedTuple):
    wall_s: float
    at_s: float
    requests: int
    output_tokens: int | None


class SoakView(LiveView):
    """Follows one soak; `progress` is told what its worker says, with the soak's time in it.
    `board` hears of all that this view does."""

    def __init__(self, console: Console, soak: Soak, board: Board | None = None) -> None:
        super().__init__(console, board or Board("", 1))
        self._soak = soak
        self._data: Mapping[str, Any] = {}
        self._at_s = soak.reached_s
        self._moments: deque[_Moment] = deque()
        self._trend = ""
        self._said_s = time.monotonic()
        self._board.started(BOARD_NAME)

    def segment_began(self) -> None:
        """Another worker starts: rates and counts are its own."""
        self._data = {}
        self._moments.clear()
        self._board.started(BOARD_NAME)

    def progress(self, at_s: float, data: Mapping[str, Any]) -> None:
        """The worker is at `at_s` on the soak's clock."""
        self._at_s, self._data = at_s, data
        self._board.progress(BOARD_NAME, at_s, data)
        now = time.monotonic()
        requests = data.get("completed", data["ended"])
        self._moments.append(_Moment(now, at_s, requests, data.get("output_tokens")))
        while now - self._moments[0].wall_s > RATE_OVER_S:
            self._moments.popleft()

    def trend(self, sentence: str) -> None:
        """What the samples so far say."""
        self._trend = sentence
        self._board.verdict(sentence)

    def tick(self) -> None:
        """Redraws, or says a line."""
        if self._console.is_terminal:
            lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in self.lines()]
            self._live.update(Group(*lines, *(Text(n, style="yellow") for n in self._notes[-5:])))
        elif time.monotonic() - self._said_s > PLAIN_EVERY_S:
            self._said_s = time.monotonic()
            self._print("; ".join(self.lines()))

    def lines(self) -> list[str]:
        """What is known now."""
        return [
            line for line in (self._time(), self._traffic(), self._memory(), self._trend) if line
        ]

    def _time(self) -> str:
        soak = self._soak
        share = self._at_s / soak.duration_s
        return (
            f"{spoken(self._at_s)} of {spoken(soak.duration_s)} ({share:.0%}), "
            f"{spoken(max(soak.duration_s - self._at_s, 0))} to go{self._wall_left()}; "
            f"segment {len(soak.segments)}, {soak.restarts} restarts"
        )

    def _wall_left(self) -> str:
        wall_s = self._rate("wall_s")
        left_s = self._soak.duration_s - self._at_s
        return "" if wall_s is None else f", about {spoken(left_s * wall_s)} of wall time"

    def _rate(self, name: str) -> float | None:
        """What passed lately, a second of the soak's clock."""
        if not self._moments:
            return None
        first, last = (getattr(self._moments[place], name) for place in (0, -1))
        passed_s = self._moments[-1].at_s - self._moments[0].at_s
        return (last - first) / passed_s if passed_s > 0 and last is not None else None

    def _traffic(self) -> str:
        if not self._data:
            return "starting a worker"
        requests, tokens = self._rate("requests"), self._rate("output_tokens")
        rates = f"{UNKNOWN if requests is None else format(requests, '.2f')} requests/s, "
        rates += f"{UNKNOWN if tokens is None else format(tokens, ',.0f')} output tokens/s"
        running, waiting = (_whole(self._data.get(name)) for name in ("running", "waiting"))
        return f"{rates}; {running} running, {waiting} waiting"

    def _memory(self) -> str:
        data = self._data
        held, reserved, allocated = (
            data.get(name) for name in ("kv_held_share", "reserved_bytes", "allocated_bytes")
        )
        kv = UNKNOWN if held is None else f"{held:.0%}"
        gap = UNKNOWN
        if reserved is not None and allocated is not None:
            gap = f"{(reserved - allocated) / GIB:.2f} GiB of {reserved / GIB:.1f} GiB reserved"
        incidents = _whole(data.get("incidents"))
        return f"KV in use {kv}; reserved - allocated {gap}; {incidents} OOM incidents"


def _whole(number: int | None) -> str:
    return UNKNOWN if number is None else f"{number:,}"
