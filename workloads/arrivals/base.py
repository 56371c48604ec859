"""The contract of an arrival process, and how random gaps become times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from workloads.settings import refusal

CHUNK = 4096
NS_PER_S = 1_000_000_000


@runtime_checkable
class Arrivals(Protocol):
    """A process that says when requests arrive."""

    own_rate_rps: float | None
    """The mean rate in requests/s that it has by itself, or None where one must be given."""

    def times_ns(self, rng: np.random.Generator, rate_rps: float) -> Iterator[NDArray[np.int64]]:
        """Arrival times at a mean rate of `rate_rps`, in ns, ascending from 0, in chunks.

        Endless for a random process; a trace's own arrivals end with the trace.
        """
        ...


def accumulate_gaps(
    rate_rps: float, draw_unit_gaps: Callable[[int], NDArray[np.float64]]
) -> Iterator[NDArray[np.int64]]:
    """Chunks of arrival times from gaps of mean 1, the first request at 0.

    Gaps are whole nanoseconds before they are summed: the sums are then exact, and neither the
    chunk's size nor the machine's floating-point sums can move an arrival.
    """
    last_ns = 0
    yield np.zeros(1, dtype=np.int64)
    while True:
        gaps_ns = np.rint(draw_unit_gaps(CHUNK) * (NS_PER_S / rate_rps)).astype(np.int64)
        times_ns = last_ns + np.cumsum(gaps_ns)
        last_ns = int(times_ns[-1])
        yield times_ns


def seconds(chunks: Iterator[NDArray[np.int64]]) -> Iterator[float]:
    """The times of all chunks, one by one, in seconds."""
    for times_ns in chunks:
        yield from (times_ns / NS_PER_S).tolist()


def check_arrivals(value: Any) -> Arrivals:
    """`value`, or WorkloadError unless it is an arrival process."""
    if not isinstance(value, Arrivals):
        fix = "select one with workload/arrivals=poisson (or gamma, constant, ramp, diurnal, ...)"
        raise refusal("workload.arrivals", value, "an arrival process", fix)
    return value
