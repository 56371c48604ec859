from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from workloads.arrivals.trace import TraceArrivals
from workloads.base import WorkloadError

RNG = np.random.default_rng(0)


def write_trace(folder: Path, timestamps_ms: list[int]) -> str:
    line = '{{"timestamp": {}, "input_length": 5, "output_length": 2}}\n'
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
