from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from workloads.arrivals.closed_loop import ClosedLoopArrivals
from workloads.arrivals.constant import ConstantArrivals
from workloads.arrivals.poisson import PoissonArrivals
from workloads.base import ClosedLoop, Request, Segment, Source, WorkloadError
from workloads.clients import Clients
from workloads.trace import TraceWorkload
from workloads.trace_file import trace_name

PublicTrace = Callable[[str], Path]
TIMES_MS = (1000, 1500, 3000)


@pytest.fixture
def path(tmp_path: Path) -> str:
    line = '{{"timestamp": {}, "input_length": {}, "output_length": 2, "hash_ids": [7]}}\n'
    file = tmp_path / "small.jsonl"
    file.write_text("".join(line.format(ms, 10 + ms // 1000) for ms in TIMES_MS))
    return str(file)


def times_s(path: str, seed: int = 0, **changed: object) -> list[float]:
    workload = TraceWorkload(path=path, **changed)  # type: ignore[arg-type]
    return [request.scheduled_s for request in workload.requests(seed)]


def test_requests_are_the_traces_from_zero_on(path: str) -> None:
    workload = TraceWorkload(path=path)
    first, second, last = workload.requests(0)
    assert workload.name == "small"
    assert first == Request(0, 0.0, 11, 2, prefix=(Segment(Source.SHARED, 7, 512),))
    assert (second.request_id, second.scheduled_s) == (1, 0.5)
    assert (last.request_id, last.scheduled_s, last.prompt_tokens) == (2, 2.0, 13)


def test_requests_can_be_read_again(path: str) -> None:
    workload = TraceWorkload(path=path)
    assert list(workload.requests(0)) == list(workload.requests(1))


def test_time_scale_multiplies_the_gaps(path: str) -> None:
    assert times_s(path, time_scale=0.5) == [0, 0.25, 1.0]


def test_rate_makes_the_mean_rate_so(path: str) -> None:
    # 2 gaps in 2 s are 1 request/s; at 4 requests/s they take 0.5 s
    assert times_s(path, rate_rps=4) == [0, 0.125, 0.5]


def test_rate_is_that_of_the_part_chosen(path: str) -> None:
    assert times_s(path, rate_rps=4, limit=2) == [0, 0.25]


def test_duration_is_in_the_traces_own_time(path: str) -> None:
    assert times_s(path, duration_s=1, time_scale=10) == [0, 5.0]


def test_other_arrivals_keep_the_lengths_at_the_traces_mean_rate(path: str) -> None:
    workload = TraceWorkload(path=path, arrivals=ConstantArrivals())
    requests = list(workload.requests(0))
    assert [request.scheduled_s for request in requests] == [0, 1.0, 2.0]
    assert [request.prompt_tokens for request in requests] == [11, 11, 13]
    assert times_s(path, arrivals=ConstantArrivals(), time_scale=0.5) == [0, 0.5, 1.0]
    assert times_s(path, arrivals=ConstantArrivals(), rate_rps=4) == [0, 0.25, 0.5]


def test_random_arrivals_follow_the_seed(path: str) -> None:
    one, again, other = (times_s(path, seed, arrivals=PoissonArrivals()) for seed in (1, 1, 2))
    assert one == again != other


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rate_rps": -1}, r"^workload\.rate_rps is -1; it must be a number from .* requests/s; "),
        ({"rate_rps": "8"}, r"^workload\.rate_rps is '8'"),
        ({"time_scale": 0}, r"^workload\.time_scale is 0"),
        ({"time_scale": None}, r"^workload\.time_scale is null"),
        ({"time_scale": 0.5, "rate_rps": 4}, r"^workload\.time_scale is 0\.5; .* set one of the"),
        ({"limit": 0}, r"^workload\.limit is 0; it must be a whole number from 1"),
        ({"duration_s": True}, r"^workload\.duration_s is True"),
        ({"format": 3}, r"^workload\.format is 3; it must be one of auto, azure, burstgpt"),
        ({"arrivals": "poisson"}, r"^workload\.arrivals is 'poisson'.*workload/arrivals=poisson"),
        ({"limit": 1, "rate_rps": 4}, r"^workload\.rate_rps is 4\.0; .* all arrive at one moment"),
        ({"limit": 1, "arrivals": PoissonArrivals()}, r"^workload\.rate_rps is null"),
        ({"on_bad_row": "no"}, r"^workload\.on_bad_row is 'no'; it must be fail or skip"),
        ({"failed_requests": True}, r"^workload\.failed_requests is True; it must be drop or keep"),
        ({"output_tokens": 1.5}, r"^workload\.output_tokens is 1\.5"),
        ({"survivors": "scores"}, r"^workload\.survivors is 'scores'; it must be null or a surv"),
        ({"clients": "slow"}, r"^workload\.clients is 'slow'; it must be null or clients"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(
    path: str, changed: dict[str, object], message: str
) -> None:
    with pytest.raises(WorkloadError, match=message):
        TraceWorkload(path=path, **changed)  # type: ignore[arg-type]


def test_texts_have_no_times_and_need_arrivals(tmp_path: Path) -> None:
    file = tmp_path / "talks.json"
    talk = {"conversations": [{"value": "a" * 40}, {"value": "b" * 8}]}
    file.write_text(json.dumps([talk] * 3))
    message = r"^workload\.arrivals is null; .* a sharegpt file, which has no times of arrival; use"
    with pytest.raises(WorkloadError, match=message):
        TraceWorkload(path=str(file))
    with pytest.raises(WorkloadError, match=message):
        TraceWorkload(path=str(file), rate_rps=4)
    with pytest.raises(WorkloadError, match=r"^workload\.rate_rps is null"):
        TraceWorkload(path=str(file), arrivals=ConstantArrivals())
    requests = TraceWorkload(path=str(file), arrivals=ConstantArrivals(), rate_rps=4).requests(0)
    assert [(each.scheduled_s, each.prompt_tokens, each.output_tokens) for each in requests] == [
        (0, 10, 2), (0.25, 10, 2), (0.5, 10, 2)
    ]  # fmt: skip


def test_what_was_left_out_is_a_fact(path: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write("{}\n")
    with pytest.raises(WorkloadError, match=r"line 4, column timestamp: '{}' lacks this column"):
        TraceWorkload(path=path)
    facts = TraceWorkload(path=path, on_bad_row="skip").trace_facts()["workload"]
    assert (facts["requests"], facts["skipped_rows"], facts["shares_prefixes"]) == (3, 1, True)


def test_clients_are_of_the_runs_seed(path: str) -> None:
    clients = Clients(leave_share=0.5, leave=["after_s"])
    workload = TraceWorkload(path=path, clients=clients)
    first, again, other = (list(workload.requests(seed)) for seed in (0, 0, 1))
    assert first == again != other
    assert times_s(path) == [request.scheduled_s for request in first]


def test_a_seed_that_is_none_is_refused_at_once(path: str) -> None:
    with pytest.raises(WorkloadError, match="seed is -1"):
        TraceWorkload(path=path).requests(-1)


def test_arguments_are_by_keyword_only() -> None:
    parameters = list(inspect.signature(TraceWorkload.__init__).parameters.values())[1:]
    assert {parameter.kind for parameter in parameters} == {inspect.Parameter.KEYWORD_ONLY}


def test_the_azure_hour_at_eight_requests_per_second(public_trace: PublicTrace) -> None:
    times = times_s(str(public_trace("azure_llm_2023_conv.csv")), rate_rps=8)
    assert len(times) == 19_366
    assert times == sorted(times)
    assert times[-1] == pytest.approx(19_365 / 8, rel=1e-12)
    # the second request comes 4.3145790 s after the first, the last 3,501.7219370 s
    assert times[1] / times[-1] == pytest.approx(4.3145790 / 3501.7219370, rel=1e-12)


def test_users_of_a_closed_loop_take_the_requests_in_order(path: str) -> None:
    loop = ClosedLoopArrivals(users=2, pause_s=1.5, pause_cv=0)
    workload = TraceWorkload(path=path, arrivals=loop)
    assert workload.closed_loop == ClosedLoop(2, 0.01)
    assert [(each.request_id, each.scheduled_s) for each in workload.requests(0)] == [
        (0, 1.5), (1, 1.5), (2, 1.5),
    ]  # fmt: skip


@pytest.mark.parametrize("changed", [{"rate_rps": 5}, {"time_scale": 2}])
def test_a_closed_loop_has_no_times_to_scale(changed: dict[str, float], path: str) -> None:
    loop = ClosedLoopArrivals(users=2)
    with pytest.raises(WorkloadError, match=r"with workload/arrivals=closed_loop"):
        TraceWorkload(path=path, arrivals=loop, **changed)  # type: ignore[arg-type]


def test_a_packed_trace_is_called_as_if_it_were_not() -> None:
    names = [trace_name(f"/x/{name}") for name in ("a.csv", "a.csv.gz", "a.jsonl.zst", "a.b.csv")]
    assert names == ["a", "a", "a", "a.b"]
