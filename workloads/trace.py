"""Recorded traffic, replayed: a trace's lengths, with its own arrivals or another process's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import starmap
from typing import Any

from workloads.arrivals.base import NS_PER_S, Arrivals, check_arrivals, seconds
from workloads.arrivals.closed_loop import ClosedLoopArrivals
from workloads.base import ClosedLoop, Request
from workloads.clients import Clients, Drawn, check_clients
from workloads.formats.base import TraceRow, facts_by_setting
from workloads.settings import number, optional_rate_rps, refusal
from workloads.streams import stream
from workloads.survivors.base import SurvivorProcess
from workloads.trace_file import TraceFile, trace_name
from workloads.trace_repeat import repeated


class TraceWorkload:
    """Requests of a trace file, the first at 0 s.

    `limit` and `duration_s` choose how much of the trace, in its own requests and seconds;
    `on_bad_row`, `failed_requests` and `output_tokens` which of its rows become what requests
    (workloads/formats/choices.py). Then every gap is multiplied by `time_scale` (0.5: twice as
    fast), or by what makes the mean rate `rate_rps`; the two exclude each other. `arrivals`
    replaces the trace's own times by another process at `rate_rps`, or at the trace's mean rate, or
    by a closed loop; the lengths and their order stay. With `repeat` the trace begins anew, a mean
    gap after its last request, for as long as it is asked: requests, and what they share, have new
    ids each time. `survivors` makes requests of several
    branches beam searches; `clients` says how answers are waited for and read, in place of what a
    recorded run says.

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
        on_bad_row: str = "fail",
        failed_requests: str = "drop",
        output_tokens: int | None = None,
        time_scale: float = 1.0,
        rate_rps: float | None = None,
        repeat: bool = False,
        arrivals: Arrivals | ClosedLoopArrivals | None = None,
        survivors: SurvivorProcess | None = None,
        clients: Clients | None = None,
    ) -> None:
        rate = optional_rate_rps("workload.rate_rps", rate_rps)
        scale = _check_time_scale(time_scale, rate)
        self.closed_loop: ClosedLoop | None = None
        self._arrivals: Arrivals | None = None
        self._loop = arrivals if isinstance(arrivals, ClosedLoopArrivals) else None
        if self._loop is not None:
            self.closed_loop = ClosedLoop(self._loop.users, self._loop.stagger_s)
            _check_no_times(rate_rps, time_scale)
        elif arrivals is not None:
            self._arrivals = check_arrivals(arrivals)
        self._survivors = _check_survivors(survivors)
        self._clients = check_clients("workload.clients", clients)
        self._trace = TraceFile(
            path,
            format,
            limit=limit,
            duration_s=duration_s,
            on_bad_row=on_bad_row,
            failed_requests=failed_requests,
            output_tokens=output_tokens,
        )
        self.name = trace_name(self._trace.path)
        own_rate = self._trace.rate_rps
        if self._loop is None:
            self._check_rate(rate, own_rate)
        self._time_scale = scale if rate is None or own_rate is None else own_rate / rate
        self._rate_rps = rate or (None if own_rate is None else own_rate / scale)
        self._repeat = self._check_repeat(repeat)

    def trace_facts(self) -> dict[str, dict[str, Any]]:
        others = facts_by_setting({"workload.arrivals": self._arrivals})
        return {"workload": self._trace.facts(), **others}

    def requests(self, seed: int) -> Iterator[Request]:
        """The trace's requests. The seed matters only where arrivals, survivors or clients are
        random."""
        rng = stream(seed, "arrivals")
        drawn = None if self._clients is None else self._clients.drawn(stream(seed, "clients"))
        rows = self._repeated() if self._repeat else self._trace.rows()
        timed: Iterator[tuple[float, TraceRow]]
        if self._loop is not None:
            timed = zip(seconds(self._loop.pauses_ns(rng)), rows, strict=False)
        elif self._arrivals is None or self._rate_rps is None:
            timed = ((row.time_ns * self._time_scale / NS_PER_S, row) for row in rows)
        else:
            times_s = seconds(self._arrivals.times_ns(rng, self._rate_rps))
            timed = zip(times_s, rows, strict=False)
        make = partial(self._request, drawn, seed)
        return starmap(make, enumerate(timed))

    def _request(
        self, clients: Drawn | None, seed: int, number: int, timed: tuple[float, TraceRow]
    ) -> Request:
        time_s, row = timed
        request_id = number if row.request_id is None else row.request_id
        survivors = None
        if self._survivors is not None and row.branches > 1:
            survivors = partial(self._survivors.steps, seed, request_id, row.branches)
        request = Request(
            request_id=request_id,
            scheduled_s=time_s,
            prompt_tokens=row.prompt_tokens,
            output_tokens=row.output_tokens,
            kind=row.kind,
            prefix=row.prefix,
            cache_salt=row.cache_salt,
            branches=row.branches,
            survivors=survivors,
            client=row.client,
        )
        return request if clients is None else replace(request, client=clients(request))

    def _repeated(self) -> Iterator[TraceRow]:
        summary = self._trace.summary
        gap_ns = round(summary.span_ns / max(summary.requests - 1, 1))
        return repeated(self._trace.rows, summary.span_ns + gap_ns)

    def _check_repeat(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise refusal("workload.repeat", value, "true or false", "true repeats without end")
        own_times = self._loop is None and self._arrivals is None
        if value and own_times and not self._trace.summary.span_ns:
            allowed = "false where a trace's requests all arrive at one moment"
            raise refusal("workload.repeat", value, allowed, "or set workload.arrivals")
        return value

    def _check_rate(self, rate_rps: float | None, own_rate: float | None) -> None:
        if self._arrivals is None and not self._trace.has_times:
            allowed = f"given for a {self._trace.format_name} file, which has no times of arrival"
            fix = "use workload/arrivals=poisson workload.rate_rps=5"
            raise refusal("workload.arrivals", None, allowed, fix)
        if own_rate is None and rate_rps is not None and self._arrivals is None:
            allowed = "null where a trace's requests all arrive at one moment"
            raise refusal("workload.rate_rps", rate_rps, allowed, "or set workload.arrivals")
        if own_rate is None and rate_rps is None and self._arrivals is not None:
            allowed = "given with workload.arrivals where the trace has no rate of its own"
            raise refusal("workload.rate_rps", rate_rps, allowed, "set workload.rate_rps")


def _check_time_scale(value: Any, rate_rps: float | None) -> float:
    fix = "0.5 is twice as fast, 2 half as fast"
    scale = number("workload.time_scale", value, 1e-6, 1e6, "(a ratio)", fix)
    if rate_rps is not None and scale != 1.0:
        allowed = f"1 while workload.rate_rps ({rate_rps:g} requests/s) is set"
        raise refusal("workload.time_scale", value, allowed, "set one of the two")
    return scale


def _check_no_times(rate_rps: Any, time_scale: Any) -> None:
    """A closed loop has no use for what scales a trace's times."""
    for name, value, unset in (("rate_rps", rate_rps, None), ("time_scale", time_scale, 1)):
        if value != unset:
            allowed = f"{'null' if unset is None else unset} with workload/arrivals=closed_loop"
            fix = "its users ask when they were answered"
            raise refusal(f"workload.{name}", value, allowed, fix)


def _check_survivors(value: Any) -> SurvivorProcess | None:
    if value is not None and not isinstance(value, SurvivorProcess):
        fix = "give a process of workloads.survivors, as conf/workload/beam.yaml does"
        raise refusal("workload.survivors", value, "null or a survivor process", fix)
    return value
