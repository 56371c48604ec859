"""The in-process driver: an open-loop client and the engine on one virtual clock."""

from __future__ import annotations

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

    A request that arrives during a step is seen by the next one. `on_tick` is called with the
    time after every step and may raise Stopped.
    """
    end_s = float("inf") if stop_after_s is None else stop_after_s
    arrivals = iter(requests)
    upcoming = next(arrivals, None)
    now = 0.0
    try:
        while now < end_s:
            while upcoming is not None and upcoming.scheduled_s <= now:
                engine.add(upcoming, upcoming.scheduled_s)
                upcoming = next(arrivals, None)
            if engine.idle:
                if upcoming is None:
                    break
                if upcoming.scheduled_s >= end_s:
                    now = end_s  # idle to the end
                    break
                now = upcoming.scheduled_s
                continue
            step = engine.step(now)
            if step is not None:
                now = step.end_s
                on_tick(now)
    except Stopped:
        pass
    engine.stop(now)
    return now
