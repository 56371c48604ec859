"""The arrivals of a recorded trace, under lengths that are not the trace's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals.base import CHUNK
from workloads.settings import refusal
from workloads.trace_file import TraceFile


class TraceArrivals:
    """A trace's arrival times, its gaps all multiplied by own rate / rate asked for.

    Reads the trace once when made. Raises WorkloadError for a trace that cannot be read or whose
    requests all arrive at one moment.
    """

    def __init__(self, *, path: str, format: str = "auto") -> None:  # noqa: A002 (the setting)
        self._trace = TraceFile(path, format, owner="workload.arrivals")
        if self._trace.rate_rps is None:
            allowed = "a trace whose requests do not all arrive at one moment"
            raise refusal("workload.arrivals.path", path, allowed, "give another trace")
        self.own_rate_rps: float | None = self._trace.rate_rps

    def times_ns(self, rng: np.random.Generator, rate_rps: float) -> Iterator[NDArray[np.int64]]:
        assert self.own_rate_rps is not None
        scale = self.own_rate_rps / rate_rps
        times = (row.time_ns for row in self._trace.rows())
        while chunk := list(islice(times, CHUNK)):
            yield np.rint(np.array(chunk) * scale).astype(np.int64)
