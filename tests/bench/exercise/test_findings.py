"""Findings of exercises d and e follow the numbers of their runs, whichever way they come out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.errors import SettingError
from bench.exercise import hours, lengths
from bench.exercise.gaps import Gap, read_gap
from bench.exercise.wording import amount, counted, listed
from bench.metrics.trend import Series, trend
from bench.report.results import load_runs

GIB = 1 << 30
USABLE_BYTES = 40 * GIB


def run_folder(
    folder: Path, reserved_gib: list[float], allocated_gib: list[float], peaks: tuple[int, int]
) -> Gap:
    """A run of a sample each 10 s, with peaks reserved and allocated in its summary."""
    folder.mkdir(parents=True)
    reserved, allocated = peaks
    summary: dict[str, Any] = {
        "status": "completed",
        "requests": {"sent": 1000, "completed": len(reserved_gib)},
        "held_waste": 0.25,
        "allocator": {
            "peak_reserved_bytes": reserved * GIB,
            "peak_allocated_bytes": allocated * GIB,
            "num_alloc_retries": 1,
        },
    }
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    columns = {
        "time_s": [10.0 * place for place in range(len(reserved_gib))],
        "reserved_bytes": [int(value * GIB) for value in reserved_gib],
        "allocated_bytes": [int(value * GIB) for value in allocated_gib],
        "completed": list(range(len(reserved_gib))),
    }
    (folder / "timeline").mkdir()
    pq.write_table(pa.table(columns), folder / "timeline" / "part-0.parquet")
    return read_gap(load_runs(folder)[0])


def test_d_says_when_peaks_rank_otherwise_than_the_end_does(tmp_path: Path) -> None:
    """At the end 3, 2 and 6 GiB are kept; beyond the peak of allocations 5, 4 and 1 were needed."""
    gaps = {
        "growing": run_folder(tmp_path / "a", [10, 10], [9, 7], (12, 7)),
        "known": run_folder(tmp_path / "b", [10, 10], [9, 8], (12, 8)),
        "bucketed": run_folder(tmp_path / "c", [10, 10], [9, 4], (12, 11)),
    }
    first, second = lengths.finding(gaps)
    assert "the last of 1,000 requests" in first
    assert "3 GiB with arbitrary lengths that grow token by token, 2 GiB with" in first
    assert "5 GiB, 4 GiB and 1 GiB more" in second
    assert "by that bucketed lengths fragment least and arbitrary lengths that" in second
    gaps["bucketed"] = run_folder(tmp_path / "d", [10, 10], [9, 9], (12, 11))
    assert "either way bucketed lengths fragment least" in lengths.finding(gaps)[1]


def series(folder: Path, gap_gib: Callable[[float], float]) -> Gap:
    """Two hours in which allocated memory stays as it is, but for a little."""
    noise = np.random.default_rng(1).normal(0, 0.01, 720)
    gaps = [gap_gib(place / 360) + float(noise[place]) for place in range(720)]
    return run_folder(folder, [20 + gap for gap in gaps], [20.0] * 720, (40, 20))


@pytest.mark.parametrize(
    ("gap_gib", "said"),
    [
        (lambda hours: 1 + hours, "grew (+1,0"),  # a GiB an hour
        (lambda hours: 1.0, "did not grow ("),
        (lambda hours: 3 - hours, "may or may not have grown (-1,0"),
    ],
)
def test_e_says_what_the_trend_says(
    tmp_path: Path, gap_gib: Callable[[float], float], said: str
) -> None:
    gap = series(tmp_path / "run", gap_gib)
    found = trend([Series(gap.time_s, gap.reserved_bytes, gap.allocated_bytes)], USABLE_BYTES, 0)
    first, second = hours.finding({"default": gap}, {"default": found})
    assert first.startswith(f"Over 2 hours reserved - allocated {said}")
    assert f"{amount(gap.gap_bytes[-1])} at the end" in second
    assert "segments went back 1 time, in retries" in second


def test_e_says_so_where_there_are_too_few_samples(tmp_path: Path) -> None:
    gap = run_folder(tmp_path / "run", [2, 3], [1, 1], (3, 1))
    assert "had too few samples" in hours.finding({"default": gap}, {"default": None})[0]


def test_a_run_without_an_allocator_is_refused(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"status": "completed", "device": "cpu"}')
    with pytest.raises(SettingError, match="device=virtual"):
        read_gap(load_runs(tmp_path)[0])


def test_numbers_are_said_with_three_digits_and_a_unit() -> None:
    assert [amount(n) for n in (0, 1500, 20 << 20, int(19.43 * GIB), None)] == [
        "0 bytes", "1.46 KiB", "20 MiB", "19.4 GiB", "not known",
    ]  # fmt: skip
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert counted(1, "time") == "1 time"
    assert counted(1200, "piece") == "1,200 pieces"
