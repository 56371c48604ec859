"""The arrivals of a recorded trace, under lengths that are not the trace's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals.base import CHUNK
from workloads.settings import refusal
from workloads.trace_file import TraceFile


class TraceArrivals:
    """A trace's arrival times, its gaps all multiplied by own rate / rate asked for.

    Reads the trace once when made. `on_bad_row` and `failed_requests` are as for the workload of
    traces. Raises WorkloadError for a trace that cannot be read, that has no times or whose
    requests all arrive at one moment.
    """

    def __init__(
        self,
        *,
        path: str,
        format: str = "auto",  # noqa: A002 (the setting's name)
        on_bad_row: str = "fail",
        failed_requests: str = "drop",
    ) -> None:
        self._trace = TraceFile(
            path,
            format,
            on_bad_row=on_bad_row,
            failed_requests=failed_requests,
            output_tokens=1,  # lengths do not matter
            owner="workload.arrivals",
        )
        if self._trace.rate_rps is None:
            allowed = "a trace whose requests do not all arrive at one moment"
            if not self._trace.has_times:
                allowed = f"a trace with times, which a {self._trace.format_name} file lacks"
            raise refusal("workload.arrivals.path", path, allowed, "give another trace")
        self.own_rate_rps: float | None = self._trace.rate_rps

    def trace_facts(self) -> dict[str, Any]:
        """What was read of the file and what was left out, for previews and summaries."""
        return self._trace.facts()

    def times_ns(self, rng: np.random.Generator, rate_rps: float) -> Iterator[NDArray[np.int64]]:
        assert self.own_rate_rps is not None
        scale = self.own_rate_rps / rate_rps
        times = (row.time_ns for row in self._trace.rows())
        while chunk := list(islice(times, CHUNK)):
            yield np.rint(np.array(chunk) * scale).astype(np.int64)
