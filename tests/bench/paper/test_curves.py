"""What a system serves from a backlog, and ratios of two."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from bench.paper.curves import rates_rps, served_rows, served_rps
from bench.paper.fig12 import FASTER_TRANSFORMER
from bench.paper.figure import at_most, published
from bench.paper.systems import MAX, VLLM
from bench.report.frames import PartFiles
from bench.report.results import Run

Ends = list[tuple[float, str]]


def backlog(folder: Path, ends: Ends) -> Run:
    """A run of which only its requests' ends are known."""
    folder.mkdir(parents=True)
    part = folder / "part-00000.parquet"
    pd.DataFrame(ends, columns=["end_s", "status"]).to_parquet(part)
    config = {"workload": {"num_requests": len(ends), "name": "p"}}
    parts = PartFiles("requests", (part,))
    summary = {"status": "completed", "time": "modelled", "device": "virtual"}
    return Run(folder, "r", summary, config, "", {}, (), parts, parts, parts, parts)


def every(seconds: float, number: int, start_s: float = 0.0) -> Ends:
    return [(start_s + seconds * (each + 1), "completed") for each in range(number)]


def test_rates_rise_by_one_factor_to_the_top() -> None:
    assert rates_rps(8.0, 4, 0.5) == [1.0, 2.0, 4.0, 8.0]


@pytest.mark.parametrize("number", [40, 400, 4000])
def test_what_is_served_depends_on_neither_the_backlog_nor_how_it_begins_and_drains(
    tmp_path: Path, number: int
) -> None:
    """4 requests/s after 100 s in which none ended, and one that ended 1,000 s after all others."""
    ends = every(0.25, number, start_s=100.0)
    run = backlog(tmp_path / "r", [*ends, (ends[-1][0] + 1000, "completed")])
    assert served_rps(run) == pytest.approx(4.0)


def test_requests_that_were_not_completed_are_not_served(tmp_path: Path) -> None:
    rejected = [(0.1 * each, "rejected") for each in range(500)]
    assert served_rps(backlog(tmp_path / "r", [*rejected, *every(2.0, 100)])) == pytest.approx(0.5)


@pytest.mark.parametrize("ends", [[], every(1.0, 1), [(3.0, "completed")] * 20])
def test_a_rate_without_time_between_completions_is_undefined(tmp_path: Path, ends: Ends) -> None:
    assert served_rps(backlog(tmp_path / "r", ends)) is None
    assert served_rps(None) is None


def test_a_ratio_is_of_what_two_systems_serve(tmp_path: Path) -> None:
    runs = {
        VLLM: backlog(tmp_path / "v", every(0.125, 80)),
        MAX: backlog(tmp_path / "m", every(0.25, 80)),
        FASTER_TRANSFORMER: backlog(tmp_path / "f", every(1.0, 80)),
    }
    others = {FASTER_TRANSFORMER: at_most("there", 6.0), MAX: published("there", 2.7, 8.0)}
    rows = served_rows(runs, "p", VLLM, others)
    assert [(row.system, row.ours, row.unit) for row in rows] == [
        (FASTER_TRANSFORMER.label, pytest.approx(1.0), "requests/s"),
        (MAX.label, pytest.approx(4.0), "requests/s"),
        (VLLM.label, pytest.approx(8.0), "requests/s"),
        (FASTER_TRANSFORMER.label, pytest.approx(8.0), "times"),
        (MAX.label, pytest.approx(2.0), "times"),
    ]
    assert [row.difference for row in rows[-2:]] == pytest.approx([8.0 - 6.0, 2.0 - 2.7])
    assert all("80 requests at once" in row.note for row in rows)


def test_a_ratio_without_one_of_the_runs_is_undefined(tmp_path: Path) -> None:
    runs = {VLLM: backlog(tmp_path / "v", every(0.125, 80)), MAX: None}
    rows = served_rows(runs, "p", VLLM, {MAX: None})
    assert [row.ours for row in rows] == [None, pytest.approx(8.0), None]
    assert "not run" in rows[-1].note
