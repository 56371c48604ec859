"""`fragbench soak` from the command line to its files, on the virtual GPU."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from bench.cli import main
from bench.experiment import compose_cells
from bench.metrics.latency import ttft_s
from bench.metrics.records import write_json
from bench.soak.state import Soak
from bench.soak.supervisor import MOST_RESTARTS, Supervisor
from tests.bench.soak.killing import read_json
from tests.virtual_gpu import skip_without_virtual_gpu

QUICK = (
    "device=virtual", "model=tiny", "workload=batch", "workload.rate_rps=2",
    "workload.kinds.batch.output.tokens=16",
)  # fmt: skip


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


def cut_off(folder: Path, died: str) -> None:
    """Makes of a completed soak one whose worker or supervisor died in its last moments."""
    segment = folder / "segment-000"
    books = read_json(folder / "soak.json") | {"status": "running"}
    if died == "worker":
        books["segments"][0] |= dict.fromkeys(("end_s", "sent_until_s", "status"))
        (segment / "summary.json").unlink()
    write_json(folder / "soak.json", books)
    (folder / "summary.json").unlink()


def test_a_soak_whose_end_was_cut_off_is_summed_up(folder: Path) -> None:
    rows = [
        f'{{"timestamp": {ms}, "input_length": 64, "output_length": 16, "hash_ids": []}}\n'
        for ms in (0, 700)
    ]
    (folder / "small.jsonl").write_text("".join(rows), encoding="utf-8")
    trace = ["device=virtual", "model=tiny", "workload=trace", "workload.path=small.jsonl"]
    assert main(["soak", "duration=1m", *trace, "out=s"]) == 0
    before = summary(folder / "s")
    assert before["requests"]["completed"] == 86  # two each 1.4 s: the gap's mean is 0.7 s
    for resumed, died in enumerate(("worker", "supervisor"), 1):
        cut_off(folder / "s", died)
        assert main(["soak", "resume=s"]) == 0
        after = summary(folder / "s")
        assert (after["status"], after["segments"], after["resumed"]) == ("completed", 1, resumed)
        assert after["ttft_s"] == before["ttft_s"]
        assert read_json(folder / "s" / "soak.json")["status"] == "completed"


def test_a_soak_that_goes_on_takes_no_other_settings(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "s").mkdir()
    Soak(60.0, "virtual", []).write(folder / "s")
    assert main(["soak", "resume=s", "seed=3"]) == 2
    assert "goes on with the settings in resume=s: leave out seed=3" in capsys.readouterr().err
    (folder / "s" / "config.yaml").write_text("{", encoding="utf-8")
    assert main(["soak", "resume=s"]) == 2
    assert "resume=s cannot go on: its config.yaml cannot be used" in capsys.readouterr().err


def test_workers_that_die_in_vain_are_given_up(folder: Path) -> None:
    (folder / "s").mkdir()
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
        (["resume="], "resume= names no folder"),
        (["duration=1h", "out=/proc/none"], "out=/proc/none cannot be made"),
        (["duration=1m", "alloc_conf=foo:1"], "alloc_conf=foo:1 cannot be used"),
    ],
)
def test_wrong_settings_are_one_sentence_and_leave_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    device = [] if "resume" in "".join(arguments) else ["device=virtual"]
    assert main(["soak", *arguments, *device]) == 2
    assert said in capsys.readouterr().err
    assert not list(folder.iterdir())
