from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from workloads.arrivals.trace import TraceArrivals
from workloads.base import WorkloadError

RNG = np.random.default_rng(0)


def write_trace(folder: Path, timestamps_ms: list[int]) -> str:
    line = '{{"timestamp": {}, "input_length": 5, "output_length": 2, "hash_ids": []}}\n'
    path = folder / "small.jsonl"
    path.write_text("".join(line.format(ms) for ms in timestamps_ms))
    return str(path)


def test_gaps_keep_their_shape_at_another_rate(tmp_path: Path) -> None:
    arrivals = TraceArrivals(path=write_trace(tmp_path, [1000, 1000, 1500, 3000]))
    assert arrivals.own_rate_rps == 1.5  # 3 gaps in 2 s
    own, twice = (np.concatenate(list(arrivals.times_ns(RNG, rate))) for rate in (1.5, 3.0))
    assert own.tolist() == [0, 0, 500_000_000, 2_000_000_000]
    assert twice.tolist() == [0, 0, 250_000_000, 1_000_000_000]


def test_a_trace_without_a_rate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"^workload\.arrivals\.path is .* at one moment"):
        TraceArrivals(path=write_trace(tmp_path, [5, 5]))


def test_messages_name_the_settings_of_arrivals() -> None:
    with pytest.raises(WorkloadError, match=r"^workload\.arrivals\.path is null"):
        TraceArrivals(path=None)  # type: ignore[arg-type]


def test_bad_rows_and_failed_requests_are_left_out_where_that_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "burst.csv"
    path.write_text("Timestamp,Request tokens,Response tokens\n0,9,9\n1,9,0\nx,9,9\n4,9,9\n")
    with pytest.raises(WorkloadError, match=r"burst\.csv, line 4, column Timestamp: 'x' is not"):
        TraceArrivals(path=str(path))
    arrivals = TraceArrivals(path=str(path), on_bad_row="skip")
    assert arrivals.own_rate_rps == 0.25
    assert arrivals.trace_facts()["failed_requests"] == 1
    kept = TraceArrivals(path=str(path), on_bad_row="skip", failed_requests="keep")
    assert kept.own_rate_rps == 0.5


def test_a_file_without_times_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    with pytest.raises(WorkloadError, match=r"a trace with times, which a vllm file lacks; give"):
        TraceArrivals(path=str(path))
