"""What a request's client does beside waiting, on its own machine's clock: it leaves, it reads
slowly, it tries again.

When it tries again is drawn from the request's id and the run's seed: the same whichever worker
sends it.
"""

from __future__ import annotations

from typing import NamedTuple

from bench.load.settings import LoadSettings
from workloads.base import Leave, Request
from workloads.streams import stream


class Habits(NamedTuple):
    """Of one request's client. `backoffs_s` is how long it waits before each retry."""

    leave: Leave | None = None
    tokens_per_s: float | None = None
    backoffs_s: tuple[float, ...] = ()


def habits(load: LoadSettings, seed: int, request: Request, time_scale: float) -> Habits:
    """The habits of the request's client, `time_scale` of whose workload's seconds pass in one of
    its own; those of `load` are its own."""
    leave, tokens_per_s = request.client
    if leave is not None and leave.after_s is not None:
        leave = leave._replace(after_s=leave.after_s / time_scale)
    return Habits(
        leave,
        None if tokens_per_s is None else tokens_per_s * time_scale,
        tuple(_backoffs_s(load, seed, request)) if load.retries.limit else (),
    )


def _backoffs_s(load: LoadSettings, seed: int, request: Request) -> list[float]:
    jitters = stream(seed, f"load/retries/{request.request_id}").random(load.retries.limit)
    return [
        load.retries.backoff_s * 2**attempt * (1 + jitter) / 2
        for attempt, jitter in enumerate(jitters.tolist())
    ]
