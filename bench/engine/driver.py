"""The in-process driver: an open-loop client and the engine on one virtual clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from bench.engine.engine import Engine
from workloads.base import Request


class Stopped(Exception):  # noqa: N818 - a wish, not an error
    """Somebody asked the run to end now."""


def drive(
    engine: Engine,
    requests: Iterable[Request],
    stop_after_s: float | None,
    on_tick: Callable[[float], None],
) -> float:
    """Sends each request at its scheduled time and steps the engine until all have ended, or
    until `stop_after_s`. Returns the seconds that passed on the clock.

    A request that arrives during a step is seen by the next one; a later turn is sent when the one
    before it has ended and its time has passed. `on_tick` is called with the
    time after every step and may raise Stopped.
    """
    end_s = float("inf") if stop_after_s is None else stop_after_s
    arrivals = Arrivals(requests)
    now = 0.0
    try:
        while now < end_s:
            while arrivals.next_s <= now:
                request = arrivals.pop()
                engine.add(request, request.scheduled_s)
                arrivals.add(engine.take_later_turns())  # it may have been rejected
            if engine.idle:
                if arrivals.next_s == float("inf"):
                    break
                now = min(arrivals.next_s, end_s)  # idle until then
                continue
            step = engine.step(now)
            arrivals.add(engine.take_later_turns())
            if step is not None:
                now = step.end_s
                on_tick(now)
    except Stopped:
        pass
    engine.stop(now)
    return now


class Arrivals:
    """Requests by time: those of the workload, and later turns of those that ended."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._first_turns = iter(requests)
        self._upcoming = next(self._first_turns, None)
        self._later_turns: list[tuple[float, int, Request]] = []

    @property
    def next_s(self) -> float:
        """When the next request is to be sent, infinity if none is known."""
        first = float("inf") if self._upcoming is None else self._upcoming.scheduled_s
        return min(first, self._later_turns[0][0]) if self._later_turns else first

    def add(self, turns: Iterable[Request]) -> None:
        """Later turns, each at its time."""
        for turn in turns:
            heapq.heappush(self._later_turns, (turn.scheduled_s, turn.request_id, turn))

    def pop(self) -> Request:
        """The next request, of which there must be one."""
        upcoming = self._upcoming
        if upcoming is not None and upcoming.scheduled_s <= self.next_s:
            self._upcoming = next(self._first_turns, None)
            return upcoming
        return heapq.heappop(self._later_turns)[2]
