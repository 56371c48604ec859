"""When generated requests, or sessions, start: an arrival process and where it ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals.base import NS_PER_S, Arrivals, check_arrivals
from workloads.arrivals.closed_loop import ClosedLoopArrivals
from workloads.base import ClosedLoop
from workloads.settings import (
    MAX_DURATION_S,
    optional_duration_s,
    optional_rate_rps,
    optional_requests,
    refusal,
)
from workloads.streams import stream


class Schedule:
    """Arrivals at `rate_rps`, null for their own rate, the first at 0 s; or a closed loop's.

    Ends after `num_requests`, or at `duration_s` (excluded), whichever comes first; at least one
    must be set, unless the arrivals are a trace's, which end by themselves. Raises WorkloadError.
    """

    def __init__(
        self,
        *,
        arrivals: Arrivals | ClosedLoopArrivals,
        rate_rps: float | None,
        num_requests: int | None,
        duration_s: float | None,
    ) -> None:
        self.num_requests = optional_requests("workload.num_requests", num_requests)
        self._duration_s = optional_duration_s("workload.duration_s", duration_s)
        self.closed_loop: ClosedLoop | None = None
        self._chunks: Callable[[np.random.Generator], Iterator[NDArray[np.int64]]]
        own_rate_rps = None
        if isinstance(arrivals, ClosedLoopArrivals):
            optional_rate_rps("workload.rate_rps", rate_rps)
            until_s = math.inf if self._duration_s is None else self._duration_s
            self.closed_loop = ClosedLoop(arrivals.users, arrivals.stagger_s, until_s)
            self._chunks = arrivals.pauses_ns
        else:
            checked = check_arrivals(arrivals)
            own_rate_rps = checked.own_rate_rps
            rate = _choose_rate_rps(rate_rps, checked)
            self._chunks = lambda rng: checked.times_ns(rng, rate)
        if num_requests is None and duration_s is None and own_rate_rps is None:
            fix = "set workload.num_requests or workload.duration_s"
            raise refusal("workload.duration_s", None, "set where num_requests is null", fix)

    def times_ns(self, seed: int) -> Iterator[NDArray[np.int64]]:
        """Chunks of times in ns, ascending, or of a closed loop's pauses, drawn as they are asked
        for. Raises WorkloadError for a seed that is none, at once."""
        return self._until_the_end(self._chunks(stream(seed, "arrivals")))

    def _until_the_end(self, chunks: Iterator[NDArray[np.int64]]) -> Iterator[NDArray[np.int64]]:
        sent = 0
        for chunk in chunks:
            times_ns = self._within_limits(chunk, sent)
            yield times_ns
            sent += len(times_ns)
            if len(times_ns) < len(chunk) or sent == self.num_requests:
                return

    def _within_limits(self, times_ns: NDArray[np.int64], sent: int) -> NDArray[np.int64]:
        if self.num_requests is not None:
            times_ns = times_ns[: self.num_requests - sent]
        if self.closed_loop is not None:
            return times_ns
        if self._duration_s is not None:
            return times_ns[: np.searchsorted(times_ns, self._duration_s * NS_PER_S)]
        if len(times_ns) and times_ns[-1] > MAX_DURATION_S * NS_PER_S:
            allowed = f"fewer than arrive in {MAX_DURATION_S:g} s"
            fix = "lower it, or raise workload.rate_rps"
            raise refusal("workload.num_requests", self.num_requests, allowed, fix)
        return times_ns


def _choose_rate_rps(value: Any, arrivals: Arrivals) -> float:
    rate_rps = optional_rate_rps("workload.rate_rps", value)
    rate_rps = arrivals.own_rate_rps if rate_rps is None else rate_rps
    if rate_rps is None:
        allowed = "a mean rate in requests/s, as these arrivals have none of their own"
        raise refusal("workload.rate_rps", value, allowed, "set workload.rate_rps=5")
    return rate_rps
