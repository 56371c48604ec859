"""The engine on a wall clock: steps take the time they take, and requests come and go meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from bench.engine.driver import Stopped
from bench.engine.engine import Engine
from bench.engine.users import Users

IDLE_WAIT_S = 0.25
"""Between two looks at whether an idle engine is to stop."""

STUCK_WAIT_S = 0.001
"""Before another try, where nothing could be scheduled."""


class Clock:
    """The engine's seconds, `scale` of which pass in one of the machine's monotonic clock."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self.start_s = time.monotonic()

    def now(self) -> float:
        """The engine's time."""
        return (time.monotonic() - self.start_s) * self.scale

    def monotonic(self, engine_s: float) -> float:
        """When the engine's time is or was `engine_s`."""
        return self.start_s + engine_s / self.scale


class Traffic(Protocol):
    """Where requests come from and what hears of them."""

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        ...

    def wait(self, until_s: float) -> None:
        """Takes in what has come, or else waits for it, at most until `until_s` of the monotonic
        clock."""
        ...

    def act(self, engine: Engine, now: float) -> None:
        """Does what came by `now`, between two steps; what came later waits."""
        ...

    def tell(self, now: float) -> None:
        """A step ended at `now`: its tokens are out."""
        ...


def drive(
    engine: Engine, traffic: Traffic, clock: Clock, on_tick: Callable[[float], None]
) -> float:
    """Steps the engine whenever it can until traffic is over and all requests have ended. Returns
    the seconds that passed on its clock.

    A modelled step is slept until its end, where the next one begins: what this process does in
    between takes no time of the GPU that is modelled. A step that took longer to compute than to
    model has no such end, is counted in the engine's `late_steps`, and the next begins now. What
    comes during a step is seen when it has ended. `on_tick` is called with the time after every
    step or wait, and may raise Stopped.
    """
    now, behind = clock.now(), False
    try:
        while True:
            traffic.act(engine, now)
            step = None if engine.idle else engine.step(now)
            if step is not None:
                behind = _sleep(traffic, clock.monotonic(step.end_s))
                if not behind and not engine.executor.measures:
                    engine.late_steps.count += 1
                    engine.late_steps.late_s += clock.now() - step.end_s
                traffic.tell(step.end_s)
                traffic.wait(0.0)
                now = step.end_s if behind else clock.now()
            elif traffic.over and engine.idle:
                break
            else:
                if not behind:  # else something may have come since
                    patience_s = IDLE_WAIT_S if engine.idle else STUCK_WAIT_S
                    traffic.wait(time.monotonic() + patience_s)
                held_since = now
                now, behind = clock.now(), False
                engine.hold(held_since, now)
            on_tick(now)
    except Stopped:
        pass
    engine.stop(now)
    traffic.tell(now)
    return now


def _sleep(traffic: Traffic, until_s: float) -> bool:
    """Waits until then; whether it was not yet then."""
    early = time.monotonic() < until_s
    while time.monotonic() < until_s:
        traffic.wait(until_s)
    return early


class Schedule:
    """What the users of a workload send and do, each at its time."""

    def __init__(self, users: Users, stop_after_s: float | None, clock: Clock) -> None:
        self._users = users
        self._end_s = float("inf") if stop_after_s is None else stop_after_s
        self._clock = clock

    @property
    def over(self) -> bool:
        return self._users.next_s == float("inf")

    def wait(self, until_s: float) -> None:
        now_s = time.monotonic()
        next_s = self._clock.monotonic(self._users.next_s)
        if next_s > now_s:  # else it waits for the end of a step
            until_s = min(until_s, next_s)
        time.sleep(max(0.0, until_s - now_s))

    def act(self, engine: Engine, now: float) -> None:
        if now >= self._end_s:
            raise Stopped
        self._users.act(now)

    def tell(self, now: float) -> None:
        pass
