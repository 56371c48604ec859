"""Matrices on Hydra's own launchers. Its `basic` one runs jobs in this process, as others do on
other machines; Ray's and submitit's are run where they are installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from bench.cli import main
from bench.cluster.arguments import PLUG_INS, read_launcher
from bench.cluster.job import run_cell
from bench.cluster.shared import CELLS
from bench.errors import SettingError
from tests.virtual_gpu import skip_without_virtual_gpu

SHORT = ("device=virtual", "workload=chat", "workload.duration_s=20", "sample_interval_s=1")
CHOSEN = "backend=paged,contiguous"
DEADLINE_S = 300
ON_THIS_MACHINE = {
    "submitit_local": [],
    "ray": ["++hydra.launcher.ray.init.num_cpus=2",
            "++hydra.launcher.ray.init.include_dashboard=false"],
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def is_installed(launcher: str) -> bool:
    try:
        version(PLUG_INS[launcher][0])
    except PackageNotFoundError:
        return False
    return True


def skip_without(launcher: str) -> None:
    if not is_installed(launcher):
        pytest.skip(f"{PLUG_INS[launcher][0]} is not installed")


def summaries(out: Path) -> dict[str, Any]:
    """Each cell's summary but for the wall time, by its folder."""
    found = {p.parent.relative_to(out).as_posix(): p for p in out.rglob("summary.json")}
    read = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in found.items()}
    return {name: summary | {"wall_s": None} for name, summary in sorted(read.items())}


def test_arguments_for_hydra_go_with_the_launcher_and_all_others_do_not() -> None:
    argv = [CHOSEN, "hydra/launcher=basic", "+hydra.launcher.x=1", "hydra.sweeper.y=2", "seed=3"]
    name, own, others = read_launcher(argv)
    assert name == "basic"
    assert own == ["hydra/launcher=basic", "+hydra.launcher.x=1", "hydra.sweeper.y=2"]
    assert others == [CHOSEN, "seed=3"]
    assert read_launcher(["hydra/launcher=fragbench", "seed=3"]).name is None


@pytest.mark.parametrize("launcher", PLUG_INS)
def test_a_launcher_that_is_not_installed_is_named_with_its_extra(launcher: str) -> None:
    if is_installed(launcher):
        pytest.skip("it is installed")
    package, extra = PLUG_INS[launcher]
    with pytest.raises(SettingError, match=rf"needs {package}.*fragbench\[{extra}\]"):
        read_launcher([f"hydra/launcher={launcher}"])


@pytest.mark.long
def test_a_cell_that_is_refused_where_it_runs_is_a_result(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_without_virtual_gpu()
    sweep = ["matrix", "kv_budget=8GiB,1KiB", *SHORT, "hydra/launcher=basic", "out=one"]
    assert main(sweep) == 1
    found = summaries(folder / "one")
    assert {name: each["status"] for name, each in found.items()} == {
        "kv_budget=1KiB": "failed", "kv_budget=8GiB": "completed",
    }  # fmt: skip
    assert found["kv_budget=1KiB"]["cause"] in capsys.readouterr().out.replace("\n", " ")


def test_jobs_of_a_launcher_end_in_one_comparison(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_without_virtual_gpu()
    sweep = ["matrix", "seed=3", *SHORT, "hydra/launcher=basic", "out=results/one"]
    assert main(sweep) == 0
    shown = capsys.readouterr().out
    assert shown.count("chat: llama3_8b") == 1
    assert f"Results: {folder}/results/one" in shown
    (name,) = summaries(folder / "results/one")
    environment = (folder / "results/one" / name / "environment.json").read_text()
    assert json.loads(environment)["command"] == ["fragbench", *sweep]
    assert (folder / "results/one" / CELLS).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("hydra.launcher.nothing=1", "'hydra.launcher.nothing' is no setting"),
        ("dashboard=true", "dashboard=true follows runs of this machine"),
    ],
)
def test_what_cannot_be_launched_is_one_sentence_and_leaves_nothing(
    argument: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_without_virtual_gpu()
    assert main(["matrix", CHOSEN, *SHORT, "hydra/launcher=basic", "out=here", argument]) == 2
    assert said in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_a_job_that_does_not_see_the_shared_folder_says_so(folder: Path) -> None:
    with pytest.raises(SettingError, match="that all machines share"):
        run_cell({"out": str(folder), "name": "backend=paged"})
    assert not (folder / CELLS).exists()


@pytest.mark.long
@pytest.mark.parametrize("launcher", ON_THIS_MACHINE)
def test_a_launchers_results_are_those_of_this_process(launcher: str, folder: Path) -> None:
    skip_without(launcher)
    skip_without_virtual_gpu()
    own = [f"hydra/launcher={launcher}", *ON_THIS_MACHINE[launcher], "out=launched"]
    command = [sys.executable, "-m", "bench", "matrix", CHOSEN, "repeats=2", *SHORT, *own]
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "HOME": str(folder),  # Ray keeps a token there
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("chat: llama3_8b") == 1
    assert main(["matrix", CHOSEN, "repeats=2", *SHORT, "out=here"]) == 0
    assert summaries(folder / "launched") == summaries(folder / "here")
    assert len(summaries(folder / "here")) == 4
