"""What a request's client does beside reading: it leaves, it reads slowly, it tries again.

Drawn from the request's id and the run's seed: the same whichever worker sends it.
"""

from __future__ import annotations

from typing import NamedTuple

from bench.load.settings import LeaveSettings, LoadSettings
from workloads.base import Request
from workloads.streams import stream


class Leave(NamedTuple):
    """When a client leaves: that many seconds after it sent, or with that many tokens; whatever
    its seconds say, a `before_first_token` one leaves when that token comes."""

    kind: str
    after_s: float | None = None
    after_tokens: int | None = None


class Habits(NamedTuple):
    """Of one request's client. `backoffs_s` is how long it waits before each retry."""

    leave: Leave | None
    tokens_per_s: float | None
    backoffs_s: tuple[float, ...]


def draw_habits(load: LoadSettings, seed: int, request: Request) -> Habits:
    """The habits of the request's client."""
    draws = stream(seed, f"load/habits/{request.request_id}").random(4 + load.retries.limit)
    leaves, moment, kind, slow, *jitters = draws.tolist()
    backoffs_s = (
        load.retries.backoff_s * 2**attempt * (1 + jitter) / 2
        for attempt, jitter in enumerate(jitters)
    )
    return Habits(
        leave=_leave(load.leave, kind, moment, request) if leaves < load.leave.share else None,
        tokens_per_s=load.slow_readers.tokens_per_s if slow < load.slow_readers.share else None,
        backoffs_s=tuple(backoffs_s),
    )


def _leave(leave: LeaveSettings, kind: float, moment: float, request: Request) -> Leave:
    name = leave.kinds[int(kind * len(leave.kinds))]
    if name == "after_s":
        least_s, most_s = leave.after_s
        return Leave(name, after_s=least_s + moment * (most_s - least_s))
    if name == "after_tokens":
        least, most = leave.after_tokens
        tokens = least + int(moment * (most - least + 1))
        # Who has the whole answer cannot leave it.
        return Leave(name, after_tokens=max(min(tokens, request.output_tokens - 1), 1))
    return Leave(name, after_s=moment * leave.before_first_token_s)
