"""A matrix of real runs on the virtual GPU, through the real command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from bench.cells import _Matrix, cell_threads, cores
from bench.cli import main
from bench.experiment import compose_cells
from tests.virtual_gpu import skip_without_virtual_gpu

DEADLINE_S = 60.0
SHORT = ("device=virtual", "workload=chat", "workload.duration_s=20", "sample_interval_s=1")
LONG = ("device=virtual", "workload=chat", "workload.duration_s=100000", "sample_interval_s=1")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a test."""
    skip_without_virtual_gpu()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return found


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def descendants(pid: int) -> list[int]:
    """Processes that a process started, its own and theirs."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")  # any thread may have started some
    children = [int(word) for each in lists for word in each.read_text(encoding="utf-8").split()]
    return children + [each for child in children for each in descendants(child)]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_matrix_has_the_same_results_however_many_run_at_once(folder: Path) -> None:
    backends = "backend=paged,contiguous"
    assert main(["matrix", backends, *SHORT, "jobs=1", "out=one"]) == 0
    assert main(["matrix", backends, *SHORT, "jobs=2", "out=two"]) == 0
    for cell in ("backend=paged", "backend=contiguous"):
        one, two = folder / "one" / cell, folder / "two" / cell
        left, right = summary(one), summary(two)
        assert left.pop("wall_s") > 0
        assert right.pop("wall_s") > 0
        assert left == right
        assert left["status"] == "completed"
        assert left["requests"]["completed"] > 0
        for table in ("requests", "timeline", "unfilled"):
            assert pd.read_parquet(one / table).equals(pd.read_parquet(two / table))


def test_a_run_says_how_to_repeat_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", *SHORT, "stop_after_s=1", "seed=3"]
    assert main(arguments) == 0
    assert main(arguments) == 0  # the same second or not, never the same folder
    first, second = sorted(folder.glob("results/*/*"))
    config = yaml.safe_load((first / "config.yaml").read_text(encoding="utf-8"))
    assert (config["seed"], config["workload"]["duration_s"]) == (3, 20)
    assert config["backend"]["block_size"] == 16
    environment = json.loads((first / "environment.json").read_text(encoding="utf-8"))
    assert environment["command"] == ["fragbench", *arguments]
    for key in ("fragbench", "python", "torch", "cuda", "platform"):
        assert environment[key]
    assert summary(first)["requests"] == summary(second)["requests"]
    shown = capsys.readouterr().out
    assert f"Results: {first.relative_to(folder)}" in shown


def test_an_earlier_run_is_repeated_from_its_configuration(folder: Path) -> None:
    changed = ["backend=bucketed", "workload=rag", "workload.duration_s=10", "seed=4"]
    assert main(["run", "device=virtual", *changed, "out=first"]) == 0
    assert main(["matrix", "from=first", "seed=4,5", "out=seeds"]) == 0
    results = [summary(folder / name) for name in ("first", "seeds/seed=4", "seeds/seed=5")]
    for result in results:
        del result["wall_s"], result["name"]
    assert results[0] == results[1]
    assert results[2]["requests"] != results[0]["requests"]


def test_a_deleted_setting_is_the_schemas_and_a_strange_name_no_path(folder: Path) -> None:
    assert main(["run", *SHORT, "~seed", "~backend.name", "name=a/b", "stop_after_s=1"]) == 0
    (run,) = folder.glob("results/*/*")
    assert summary(run)["seed"] == 0
    assert summary(run)["name"] == "a/b"


def test_a_matrix_goes_on_past_cells_that_fail(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # 200 MiB are 1,600 tokens of 128 KiB: room for one sequence of 512 and none of 8,192
    settings = ["max_model_len=8192,512", "kv_budget=200MiB", "out=mixed", *SHORT]
    assert main(["matrix", *settings]) == 1
    refused, done = folder / "mixed/max_model_len=8192", folder / "mixed/max_model_len=512"
    assert summary(done)["status"] == "completed"
    assert summary(refused)["status"] == "failed"
    assert "max_model_len=8192" in summary(refused)["cause"]
    shown = capsys.readouterr().out
    assert "failed: max_model_len=8192: the KV budget of 0.20 GiB" in " ".join(shown.split())


def test_a_matrix_without_a_usable_cell_writes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["matrix", "alloc_conf=foo:1", "seed=1,2", *SHORT, "out=none"]) == 2
    assert "alloc_conf=foo:1 cannot be used: PyTorch says" in capsys.readouterr().err
    assert not list(folder.iterdir())


def test_another_launcher_runs_a_cell_after_the_other(folder: Path) -> None:
    settings = ["backend=paged,bucketed", "stop_after_s=1", "out=basic", *SHORT]
    assert main(["matrix", "hydra/launcher=basic", *settings]) == 0
    assert len(list(folder.glob("basic/*/summary.json"))) == 2


def test_a_killed_run_keeps_what_it_had_and_the_matrix_goes_on(folder: Path) -> None:
    command = start("matrix", "backend=paged,bucketed", "jobs=1", "out=killed", *LONG)
    killed, following = (folder / "killed" / f"backend={name}" for name in ("paged", "bucketed"))
    wait_until(lambda: any(killed.glob("requests/*.parquet")))
    os.kill(running_cell(command.pid), signal.SIGKILL)
    wait_until(lambda: (following / "timeline").exists())
    command.send_signal(signal.SIGINT)
    shown, _ = command.communicate(timeout=DEADLINE_S)
    assert command.returncode == 130
    found = summary(killed)
    assert found["status"] == "incomplete"
    assert "killed by SIGKILL" in found["cause"]
    assert found["requests"]["completed"] > 0
    assert sum(found["requests"].values()) == len(pd.read_parquet(killed / "requests"))
    assert "killed by SIGKILL" in shown
    assert summary(following)["status"] == "incomplete"


def running_cell(pid: int) -> int:
    """The process of the only cell that runs: a child of the fork server."""
    (server,) = descendants(pid)[:1]
    (cell,) = descendants(server)
    return cell


def test_ctrl_c_stops_within_a_step_and_keeps_results(folder: Path) -> None:
    command = start("matrix", "backend=paged,bucketed", "seed=0,1", "jobs=2", "out=kept", *LONG)
    wait_until(lambda: len(list(folder.glob("kept/*/timeline"))) == 2)
    left = descendants(command.pid)
    command.send_signal(signal.SIGINT)
    shown, _ = command.communicate(timeout=DEADLINE_S)
    assert command.returncode == 130
    summaries = [summary(run) for run in folder.glob("kept/*")]
    assert [found["status"] for found in summaries] == ["incomplete", "incomplete"]
    for found in summaries:
        assert found["cause"] == "stopped by the user"
        counts = dict(found["requests"])
        assert counts.pop("sent") == sum(counts.values())
    assert "Stopped: 2 of 4 cells did not run." in shown
    wait_until(lambda: not any(map(is_alive, left)))


def test_a_second_ctrl_c_stops_at_once_and_leaves_no_process(folder: Path) -> None:
    command = start("matrix", "backend=paged,bucketed", "jobs=2", "out=cut", *LONG)
    wait_until(lambda: len(list(folder.glob("cut/*/timeline"))) == 2)
    left = descendants(command.pid)
    assert left
    for cell in left[1:]:
        os.kill(cell, signal.SIGSTOP)  # so that the first does not suffice
    command.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert command.poll() is None
    command.send_signal(signal.SIGINT)
    shown, _ = command.communicate(timeout=DEADLINE_S)
    assert command.returncode == 130
    assert "stopped at once" in shown
    wait_until(lambda: not any(map(is_alive, left)))


def test_on_the_cpu_runs_come_one_by_one_unless_several_are_asked_for() -> None:
    """Their times are measured, and neighbours would take each other's cores."""
    unasked, two = _Matrix(deque(), None, 7), _Matrix(deque(), 2, 7)
    assert [unasked.jobs(kind) for kind in ("virtual", "cpu", "cuda")] == [os.cpu_count(), 1, 1]
    assert [two.jobs(kind) for kind in ("virtual", "cpu", "cuda")] == [2, 2, 1]


def test_large_models_on_the_cpu_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    threads = {}
    for model in ("tiny", "llama2_7b"):
        (cell,), _ = compose_cells([f"model={model}", "device=cpu"], ["fragbench"])
        cell.device = "cpu"
        threads[model] = [cell_threads(cell, cores() // jobs) for jobs in (1, 3, 16)]
        cell.device = "virtual"
        assert cell_threads(cell, cores()) == 1
    assert threads == {"tiny": [1, 1, 1], "llama2_7b": [8, 2, 1]}
