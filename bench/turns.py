"""Requests of a workload, later turns too, counted before a run."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from itertools import takewhile

from workloads.base import Request, Workload, WorkloadError
from workloads.later import Later

MOST_COUNTED = 200_000
COUNT_S = 1.0
"""Of drawing; a workload that has more is not counted."""


def turns(first_turns: Iterable[Request]) -> Iterator[Request]:
    """Each first turn and those that follow it."""
    for first in first_turns:
        turn: Request | None = first
        while turn is not None:
            yield turn
            turn = turn.next_turn


def sessions(workload: Workload, seed: int, stop_after_s: float | None) -> Iterator[Request]:
    """First turns of those that will be sent, so far as their times are known before."""
    drawn = workload.requests(seed)
    if stop_after_s is None or workload.closed_loop is not None:
        return drawn
    return takewhile(lambda request: request.scheduled_s < stop_after_s, drawn)


def count_turns(workload: Workload, seed: int, stop_after_s: float | None) -> int | None:
    """How many requests will be sent, None for more than are counted or where it depends on their
    answers. Later turns count, though the end may cut them off.

    Raises WorkloadError for a workload without requests, unless it is what is left of one.
    """
    first_turns = sessions(workload, seed, stop_after_s)
    loop = workload.closed_loop
    ends_by_time = stop_after_s is not None or (loop is not None and loop.until_s < math.inf)
    known = loop is None or not ends_by_time
    count, end_s = 0, time.monotonic() + COUNT_S
    for count, _ in enumerate(turns(first_turns), 1):
        if not known or count == MOST_COUNTED or time.monotonic() > end_s:
            return None
    if not count and not isinstance(workload, Later):
        raise WorkloadError(f"workload={workload.name} has no requests: widen its limits.")
    return count


def check_one_branch(workload: Workload, seed: int, stop_after_s: float | None) -> None:
    """Raises WorkloadError where a request asks for several branches, among those that are
    counted."""
    end_s = time.monotonic() + COUNT_S
    for count, request in enumerate(turns(sessions(workload, seed, stop_after_s)), 1):
        if request.branches > 1:
            raise WorkloadError(
                f"workload={workload.name} asks for {request.branches} samples or beams of a "
                "prompt, and engine=vllm is sent requests of one: choose traffic without, or "
                "engine=inrepo."
            )
        if count == MOST_COUNTED or time.monotonic() > end_s:
            return


def loop_name(workload: Workload) -> str:
    """`open` where requests have times of their own, else `closed`."""
    return "open" if workload.closed_loop is None else "closed"
