"""The in-process driver: a workload's users and the engine on one virtual clock."""

from __future__ import annotations

import math
from collections.abc import Callable

from bench.engine.engine import Engine
from bench.engine.users import Users


class Stopped(Exception):  # noqa: N818 - a wish, not an error
    """Somebody asked the run to end now."""


def drive(
    engine: Engine,
    users: Users,
    stop_after_s: float | None,
    on_tick: Callable[[float], None],
) -> float:
    """Steps the engine until all that its users send has ended, or until `stop_after_s`. Returns
    the seconds that passed on the clock.

    What users do during a step is seen by the next one. `on_tick` is called with the time after
    every step or wait, and may raise Stopped.
    """
    end_s = math.inf if stop_after_s is None else stop_after_s
    now, stuck = 0.0, False
    try:
        while now < end_s:
            users.act(now)
            if engine.idle and users.next_s == math.inf:
                break
            step = None if engine.idle else engine.step(now)
            if step is not None:
                now = step.end_s
                on_tick(now)
            elif engine.idle or stuck:  # until somebody asks, or reads on
                assert users.next_s < math.inf, "nothing can be scheduled"
                until_s = min(users.next_s, end_s)
                engine.hold(now, until_s)
                now = until_s
                on_tick(now)
            stuck = step is None
    except Stopped:
        pass
    engine.stop(now)
    return now
