"""What is left of a workload from some time on: traffic goes on after a break."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from workloads.base import ClosedLoop, Request, Workload
from workloads.settings import MAX_DURATION_S, MAX_REQUESTS, count, number


class Later:
    """The sessions of `workload` that start later than `after_s` on a clock that is 0 at `since_s`,
    with times on one that is 0 at `start_s`; what is due by then comes at once. Of a closed loop,
    those with ids above `after_id`.

    All of them keep their ids, and so their tokens. Turns of sessions from before do not come.
    """

    def __init__(
        self,
        *,
        workload: Workload,
        since_s: float,
        after_s: float,
        start_s: float,
        after_id: int = -1,
        name: str | None = None,
    ) -> None:
        fix = "give the times at which traffic went on, broke off and goes on again"
        self._since_s, self._after_s, self._start_s = (
            number(f"workload.{name}", value, 0, MAX_DURATION_S, "seconds", fix)
            for name, value in (("since_s", since_s), ("after_s", after_s), ("start_s", start_s))
        )
        fix = "give the id of the last request that was sent"
        count("workload.after_id", after_id, -1, MAX_REQUESTS, "", fix)
        self._after_id = after_id
        self._workload = workload
        self.name = name or workload.name
        self.closed_loop = _left(workload.closed_loop, self._start_s)

    def requests(self, seed: int) -> Iterator[Request]:
        """The rest of the requests of that seed."""
        drawn = self._workload.requests(seed)
        if self.closed_loop is not None:
            return (each for each in drawn if each.request_id > self._after_id)
        return (
            replace(each, scheduled_s=max(each.scheduled_s - self._start_s, 0.0))
            for each in drawn
            if each.scheduled_s - self._since_s > self._after_s  # as the clock then had it
        )

    def trace_facts(self) -> dict[str, dict[str, Any]]:
        return self._workload.trace_facts()


def _left(loop: ClosedLoop | None, start_s: float) -> ClosedLoop | None:
    return None if loop is None else loop._replace(until_s=max(loop.until_s - start_s, 0.0))
