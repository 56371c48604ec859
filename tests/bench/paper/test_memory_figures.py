"""The figures of utilization, empty_cache, restart and checkpoints: what their jobs measure, and
what is kept of them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bench.cells import cell_job
from bench.cli import main
from bench.paper import utilization
from bench.paper.checkpoints import POINTS, QUANTITIES, SYSTEMS
from bench.paper.over_time import mean_over_time
from bench.paper.restart import CASES, _lives
from bench.paper.restart_job import _between
from bench.paper.utilization import FIRST, PANELS
from tests.bench.engine.runs import composed
from tests.virtual_gpu import _launcher, skip_without_virtual_gpu
from workloads.base import Request

REFERENCE = Path(__file__).parents[3] / "results" / "reference"
SMALL = ("model.layers=2", "gpu=rtx4090", "workload=mixed", "sample_interval_s=1")


def done(out: Path, target: str, also: Mapping[str, Any], *overrides: str) -> Any:
    """What a figure's job returns for one run."""
    skip_without_virtual_gpu()
    job = cell_job(composed(out, *SMALL, *overrides), None)
    finished = _launcher().run(replace(job, target=target, payload={**job.payload, **also}))
    assert finished.status == "ok", finished.traceback or finished.cause
    return finished.result


@pytest.mark.parametrize(("set_aside", "fails"), [(True, False), (False, True)])
def test_the_longest_prefill_fits_a_full_card_if_its_peak_was_set_aside(
    set_aside: bool, fails: bool, tmp_path: Path
) -> None:
    """Of 24 GiB 4 % are less than the 1.1 GiB that it needs."""
    found = done(
        tmp_path / "run", "bench.paper.utilization_job:run",
        {"every_steps": 10, "set_aside": set_aside}, "utilization=0.96", "backend=paged",
        "engine.prefill=whole", "workload.rate_rps=10000", "workload.num_requests=12",
        "workload.duration_s=null", "engine.max_num_seqs=2",
    )  # fmt: skip
    assert found["tried"] > 5
    assert found["refused"] == (found["tried"] if fails else 0)


def test_the_five_points_see_no_leak_and_the_operation_that_failed(tmp_path: Path) -> None:
    found = done(
        tmp_path / "run", "bench.paper.checkpoints_job:measure",
        {"mix_requests": 10, "crowd_requests": 150}, "backend=contiguous", "backend.reserve=grow",
        "backend.layout=sequence", "utilization=1", "workload.rate_rps=2", "kv_budget=600MiB",
        "workload.num_requests=300", "workload.duration_s=null",
    )  # fmt: skip
    points = found["points"]
    assert list(points) == ["init", "two", "ended", "mix", "failing"]
    idle = [points[key]["allocated"] for key in ("init", "ended", "mix")]
    assert idle == [idle[0]] * 3
    assert points["two"]["allocated"] > idle[0]
    assert points["ended"]["reserved"] > points["init"]["reserved"]
    for state in points.values():
        assert state["requested"] <= state["allocated"] <= state["reserved"]
    assert found["wanted_bytes"] > points["failing"]["largest_free"]


def test_processes_share_out_all_of_the_traffic_and_begin_at_0() -> None:
    requests = [Request(n, 10.0 * n, 5, 5) for n in range(10)]
    for case in CASES:
        lives = _lives(case, 100.0)
        assert len(lives) == case.restarts + 1
        assert [life.start_s for life in lives[1:]] == [life.stop_s for life in lives[:-1]]
        shares = [list(_between(iter(requests), life.start_s, life.stop_s)) for life in lives]
        assert [each.request_id for share in shares for each in share] == list(range(10))
        for life, share in zip(lives, shares, strict=True):
            assert all(0 <= each.scheduled_s < life.stop_s - life.start_s for each in share)


def test_a_pause_counts_as_what_it_ends_with() -> None:
    """6 GiB for two seconds; then nothing runs for eight, and all but 1 GiB has been given back."""
    samples = pd.DataFrame({"for_s": [1.0, 1.0, 8.0], "reserved": [6.0, 6.0, 1.0]})
    assert mean_over_time(samples, "reserved") == (6 + 6 + 8) / 10
    assert mean_over_time(samples[:0], "reserved") is None


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("utilization", "utilization=0.9"),
        ("empty_cache", "engine.empty_cache=never"),
        ("restart", "workload.duration_s=60"),
        ("checkpoints", "backend.reserve=max"),
    ],
)
def test_a_figure_keeps_the_settings_that_it_is_about(
    name: str, argument: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["figure", name, argument, f"out={tmp_path / 'here'}"]) == 2
    assert f"{argument} is what this figure sets itself" in capsys.readouterr().err
    assert not (tmp_path / "here").exists()


def read(path: Path) -> dict[tuple[str, str, str, str], float | None]:
    """Values by panel, system, x and quantity."""
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (row["panel"], row["system"], row["x"], row["quantity"]): (
                float(row["ours"]) if row["ours"] else None
            )
            for row in csv.DictReader(file)
        }


@pytest.mark.long
@pytest.mark.parametrize("name", ["utilization", "empty_cache", "restart", "checkpoints"])
def test_a_short_figure_is_whole(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without_virtual_gpu()
    monkeypatch.setattr(utilization, "UTILIZATIONS", (0.97,))
    out = tmp_path / "here"
    assert main(["figure", name, "quick=true", f"out={out}", "jobs=2"]) == 0
    assert (out / f"{name}.png").stat().st_size > 10_000
    rows = read(out / f"{name}.csv")
    assert sum(value is not None for value in rows.values()) > len(rows) / 2


def test_every_point_of_every_system_is_kept_and_leaks_nothing() -> None:
    rows = read(REFERENCE / "checkpoints.csv")
    init, _, ended, mix, _ = POINTS.values()
    for system in SYSTEMS:
        for place, point in enumerate(POINTS.values(), 1):
            for quantity in QUANTITIES.values():
                assert rows[system, point, str(place), quantity] is not None
        allocated = {
            point: rows[system, point, str(place), "allocated"]
            for place, point in enumerate(POINTS.values(), 1)
        }
        assert allocated[init] == allocated[ended] == allocated[mix]


def test_what_is_kept_of_utilization_is_what_is_said_of_it() -> None:
    """docs/exercises.md."""
    rows = read(REFERENCE / "utilization.csv")
    first = {panel: [rows[panel, each.label, "", FIRST] for each in utilization.SYSTEMS]
             for panel in PANELS.values()}  # fmt: skip
    assert list(first.values()) == [[0.94, None, None, None], [0.9, 0.96, 0.96, None]]
