"""`fragbench soak` from the command line to its files, on the virtual GPU."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from bench.cli import main
from bench.experiment import compose_cells
from bench.metrics.latency import ttft_s
from bench.report.results import load_runs
from bench.soak.state import Soak
from bench.soak.supervisor import MOST_RESTARTS, Supervisor
from tests.bench.soak.killing import KilledSoak, read_json
from tests.virtual_gpu import skip_without_virtual_gpu

QUICK = ("device=virtual", "model=tiny", "workload=chat", "workload.rate_rps=2")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    skip_without_virtual_gpu()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return found


def test_a_soak_lasts_as_long_as_asked_on_its_own_clock(folder: Path) -> None:
    settings = ["timeline_rows=128", "sample_interval_s=1"]
    assert main(["soak", "duration=10m", *QUICK, *settings, "out=s"]) == 0
    found = summary(folder / "s")
    assert (found["status"], found["segments"], found["restarts"]) == ("completed", 1, 0)
    assert found["simulated_s"] == pytest.approx(600, abs=5)
    assert found["trend"]["verdict"] in ("grows", "no growth", "not settled")
    requests = pd.read_parquet(folder / "s" / "segment-000" / "requests")
    assert requests["scheduled_s"].max() > 500
    completed = requests[requests["status"] == "completed"]
    assert found["ttft_s"]["mean"] == pytest.approx(ttft_s(completed).mean())
    timeline = pd.read_parquet(folder / "s" / "segment-000" / "timeline")
    assert 64 <= len(timeline) <= 128  # of 600 samples
    assert timeline["time_s"].max() > 500


def test_a_run_that_was_stopped_drains_and_goes_on(folder: Path) -> None:
    with KilledSoak(folder, "flush_s=0.2") as soak:
        soak.wait_for_completed()
        assert soak.stop() == signal.SIGINT + 128
    first = read_json(soak.out / "segment-000" / "summary.json")
    assert (first["status"], first["cause"]) == ("incomplete", "stopped by the user")
    # what ran was finished, so that nothing that was admitted is open
    rows = pd.read_parquet(soak.out / "segment-000" / "requests")
    assert not (rows["admitted_s"].notna() & (rows["status"] == "unfinished")).any()
    books = read_json(soak.out / "soak.json")
    assert (books["status"], books["segments"][0]["lost"]) == ("stopped", 0)
    (run,) = load_runs(soak.out)
    assert run.status == "incomplete"
    assert run.request_counts["completed"] == len(soak.completed())
    with_other_settings = ["soak", f"resume={soak.out}", "seed=3"]
    assert main(with_other_settings) == 2


def test_workers_that_die_in_vain_are_given_up(folder: Path) -> None:
    (cell,), _ = compose_cells([*QUICK, "timeline_rows=64", "out=s"], ["fragbench", "soak"])
    cell.config["workload"] = {"_target_": "tests.bench.soak.dying_workload.Dying"}
    console = Console(width=130, file=io.StringIO())
    soak = Soak(60.0, "virtual", ["fragbench", "soak"])
    assert Supervisor(cell, soak, console).run("start") == 1
    assert soak.restarts == MOST_RESTARTS
    assert [segment.status for segment in soak.segments] == ["failed"] * MOST_RESTARTS
    found = summary(folder / "s")
    assert found["status"] == "failed"
    assert found["cause"] == (
        "5 workers in a row completed no request: RuntimeError: nobody survives this"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "soak needs a length: give duration=6h"),
        (["duration=1h", "stop_after_s=3"], "stop_after_s=3 would end the traffic of a soak"),
        (["duration=1h", "workload.num_requests=3"], "workload.num_requests=3 would end"),
        (["duration=6x"], "duration=6x is no length of time"),
        (["duration=1h", "timeline_rows=3"], "timeline_rows=3 is too few"),
        (["resume=nowhere"], "resume=nowhere is no soak"),
        (["duration=1m", "alloc_conf=foo:1"], "alloc_conf=foo:1 cannot be used"),
    ],
)
def test_wrong_settings_are_one_sentence_and_leave_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    device = [] if "resume=nowhere" in arguments else ["device=virtual"]
    assert main(["soak", *arguments, *device]) == 2
    assert said in capsys.readouterr().err
    assert not list(folder.iterdir())
