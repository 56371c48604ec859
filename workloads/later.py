"""What is left of a workload from some time on: traffic goes on after a break."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from workloads.base import ClosedLoop, Request, Workload
from workloads.settings import MAX_DURATION_S, MAX_REQUESTS, count, number


class Later:
    """The sessions of `workload` that start later than `after_s`, whose times count from there; of
    a closed loop those with ids above `after_id`.

    All of them keep their ids, and so their tokens. Turns of sessions from before do not come.
    """

    def __init__(
        self, *, workload: Workload, after_s: float, after_id: int = -1, name: str | None = None
    ) -> None:
        fix = "give the time at which the traffic was broken off"
        self._after_s = number("workload.after_s", after_s, 0, MAX_DURATION_S, "seconds", fix)
        fix = "give the id of the last request that was sent"
        count("workload.after_id", after_id, -1, MAX_REQUESTS, "", fix)
        self._after_id = after_id
        self._workload = workload
        self.name = name or workload.name
        self.closed_loop = _left(workload.closed_loop, self._after_s)

    def requests(self, seed: int) -> Iterator[Request]:
        """The rest of the requests of that seed."""
        drawn = self._workload.requests(seed)
        if self.closed_loop is not None:
            return (each for each in drawn if each.request_id > self._after_id)
        return (
            replace(each, scheduled_s=each.scheduled_s - self._after_s)
            for each in drawn
            if each.scheduled_s > self._after_s
        )

    def trace_facts(self) -> dict[str, dict[str, Any]]:
        return self._workload.trace_facts()


def _left(loop: ClosedLoop | None, after_s: float) -> ClosedLoop | None:
    return None if loop is None else loop._replace(until_s=max(loop.until_s - after_s, 0.0))
