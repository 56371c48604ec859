"""A trace that is repeated without end, and what is left of traffic after a break."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

from workloads.arrivals.closed_loop import ClosedLoopArrivals
from workloads.arrivals.constant import ConstantArrivals
from workloads.base import Request, Source, WorkloadError
from workloads.later import Later
from workloads.trace import TraceWorkload

TIMES_MS = (1000, 1500, 3000)


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "small.jsonl"
    lines = [
        {"timestamp": ms, "input_length": 600, "output_length": 2, "hash_ids": [7, number]}
        for number, ms in enumerate(TIMES_MS)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(file)


def first(workload: TraceWorkload | Later, count: int) -> list[Request]:
    return list(islice(workload.requests(0), count))


def test_a_trace_goes_on_a_mean_gap_after_its_end(path: str) -> None:
    requests = first(TraceWorkload(path=path, repeat=True), 9)
    # 2 s from first to last and 2 gaps: it begins anew every 3 s
    assert [r.scheduled_s for r in requests] == [0, 0.5, 2, 3, 3.5, 5, 6, 6.5, 8]
    assert [r.request_id for r in requests] == list(range(9))
    assert [r.prompt_tokens for r in requests] == [600] * 9


def test_nothing_is_shared_between_one_time_and_the_next(path: str) -> None:
    requests = first(TraceWorkload(path=path, repeat=True), 6)
    shared = [{part.id for part in r.prefix if part.source is Source.SHARED} for r in requests]
    assert shared[:3] == [{7, 0}, {7, 1}, {7, 2}]
    assert shared[3:] == [{15, 8}, {15, 9}, {15, 10}]  # 8 ids later: the largest is 7


def test_scaled_times_and_other_arrivals_are_repeated_too(path: str) -> None:
    scaled = first(TraceWorkload(path=path, repeat=True, time_scale=2.0), 4)
    assert [r.scheduled_s for r in scaled] == [0, 1, 4, 6]
    constant = TraceWorkload(path=path, repeat=True, arrivals=ConstantArrivals(), rate_rps=4)
    assert [r.scheduled_s for r in first(constant, 5)] == [0, 0.25, 0.5, 0.75, 1]


def test_a_trace_at_one_moment_cannot_be_repeated(path: str) -> None:
    with pytest.raises(WorkloadError, match=r"workload\.repeat is True; it must be false where"):
        TraceWorkload(path=path, repeat=True, limit=1)
    with pytest.raises(WorkloadError, match=r"workload\.repeat is 'yes'"):
        TraceWorkload(path=path, repeat="yes")  # type: ignore[arg-type]


def test_later_traffic_is_the_rest_with_its_ids(path: str) -> None:
    whole = TraceWorkload(path=path, repeat=True)
    rest = first(Later(workload=whole, since_s=0.0, after_s=2.0, start_s=2.0), 3)
    assert [(r.request_id, r.scheduled_s) for r in rest] == [(3, 1.0), (4, 1.5), (5, 3.0)]


def test_traffic_that_fell_due_in_a_break_comes_at_once(path: str) -> None:
    whole = TraceWorkload(path=path, repeat=True)  # at 0, 0.5, 2, 3, 3.5 s
    rest = first(Later(workload=whole, since_s=0.4, after_s=0.1, start_s=2.5), 3)
    assert [(r.request_id, r.scheduled_s) for r in rest] == [(2, 0.0), (3, 0.5), (4, 1.0)]


def test_later_sessions_of_a_closed_loop_are_those_not_sent(path: str) -> None:
    arrivals = ClosedLoopArrivals(users=2, pause_s=1.0)
    whole = TraceWorkload(path=path, repeat=True, arrivals=arrivals)
    rest = Later(workload=whole, since_s=0.0, after_s=100.0, start_s=100.0, after_id=4)
    assert rest.closed_loop == whole.closed_loop
    assert [r.request_id for r in first(rest, 3)] == [5, 6, 7]
