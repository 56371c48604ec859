"""Recorded traffic, replayed: a trace's lengths, with its own arrivals or another process's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workloads.arrivals.base import NS_PER_S, Arrivals, check_arrivals, seconds
from workloads.base import Request, Segment, Source
from workloads.formats.base import TraceRow
from workloads.settings import number, optional_rate_rps, refusal
from workloads.streams import stream
from workloads.trace_file import TraceFile


class TraceWorkload:
    """Requests of a trace file, the first at 0 s.

    `limit` and `duration_s` choose how much of the trace, in its own requests and seconds. Then
    every gap is multiplied by `time_scale` (0.5: twice as fast), or by what makes the mean rate
    `rate_rps`; the two exclude each other. `arrivals` replaces the trace's own times by another
    process at `rate_rps`, or at the trace's mean rate; the lengths and their order stay.

    Making one reads the chosen part once and raises WorkloadError for a setting or a line that
    cannot be used; `requests` then reads it again, one row in memory at a time.
    """

    def __init__(
        self,
        *,
        path: str,
        format: str = "auto",  # noqa: A002 (the setting's name)
        limit: int | None = None,
        duration_s: float | None = None,
        time_scale: float = 1.0,
        rate_rps: float | None = None,
        arrivals: Arrivals | None = None,
    ) -> None:
        rate = optional_rate_rps("workload.rate_rps", rate_rps)
        scale = _check_time_scale(time_scale, rate)
        self._arrivals = None if arrivals is None else check_arrivals(arrivals)
        self._trace = TraceFile(path, format, limit=limit, duration_s=duration_s)
        self.name = self._trace.path.stem
        own_rate = self._trace.rate_rps
        if rate is not None and own_rate is None and arrivals is None:
            allowed = "null where a trace's requests all arrive at one moment"
            raise refusal("workload.rate_rps", rate_rps, allowed, "or set workload.arrivals")
        self._time_scale = scale if rate is None or own_rate is None else own_rate / rate
        self._rate_rps = rate or (None if own_rate is None else own_rate / scale)
        if self._arrivals is not None and self._rate_rps is None:
            allowed = "given with workload.arrivals where the trace has no rate of its own"
            raise refusal("workload.rate_rps", rate_rps, allowed, "set workload.rate_rps")

    def requests(self, seed: int) -> Iterator[Request]:
        """The trace's requests. The seed matters only where `arrivals` are random."""
        rng = stream(seed, "arrivals")
        rows = self._trace.rows()
        timed: Iterator[tuple[float, TraceRow]]
        if self._arrivals is None or self._rate_rps is None:
            timed = ((row.time_ns * self._time_scale / NS_PER_S, row) for row in rows)
        else:
            times_s = seconds(self._arrivals.times_ns(rng, self._rate_rps))
            timed = zip(times_s, rows, strict=False)
        return (_request(number, time_s, row) for number, (time_s, row) in enumerate(timed))


def _check_time_scale(value: Any, rate_rps: float | None) -> float:
    fix = "0.5 is twice as fast, 2 half as fast"
    scale = number("workload.time_scale", value, 1e-6, 1e6, "(a ratio)", fix)
    if rate_rps is not None and scale != 1.0:
        allowed = f"1 while workload.rate_rps ({rate_rps:g} requests/s) is set"
        raise refusal("workload.time_scale", value, allowed, "set one of the two")
    return scale


def _request(request_id: int, time_s: float, row: TraceRow) -> Request:
    return Request(
        request_id=request_id,
        scheduled_s=time_s,
        prompt_tokens=row.prompt_tokens,
        output_tokens=row.output_tokens,
        prefix=tuple(
            Segment(Source.SHARED, block_id, row.prefix_block_tokens) for block_id in row.prefix_ids
        ),
    )
