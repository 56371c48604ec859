"""`fragbench gpu-check`: one sentence where it cannot run; every part whatever others do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.cli import main
from bench.device.probe import probe
from bench.gpu_check.card import REAL, Card
from bench.gpu_check.command import PARTS, TOTAL_S, run_parts
from bench.gpu_check.part import Part, Task, Verdict
from bench.gpu_check.processes import PartError
from tests.refusals import check_refused

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["parts=speed"], ["parts=speed", *PARTS]),
        (["parts="], ["parts has no value", "parts=kernels"]),
        (["out"], ["out has no value", "out=results/mine"]),
        (["gpu=h100_80gb"], ["'gpu=h100_80gb' is no setting", "out=, parts="]),
    ],
)
def test_a_wrong_setting_is_one_sentence(
    arguments: list[str], parts: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_refused(["gpu-check", *arguments], parts, capsys)
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(bool(probe().gpu_names), reason="this machine has a GPU")
def test_without_a_gpu_it_says_so_and_runs_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gpu-check", "out=mine"]) == 2
    assert capsys.readouterr().err == (
        "fragbench: gpu-check needs an NVIDIA GPU and its driver, and none was found, so nothing "
        "was run: start it on a machine that has one.\n"
    )
    assert list(folder.iterdir()) == []


def test_help_names_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpu-check", "--help"]) == 0
    said = capsys.readouterr().out
    for name, part in PARTS.items():
        assert f"  {name} " in said
        assert part.help in said


def test_no_part_gets_more_than_what_is_left_of_10_minutes(
    folder: Path, card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []

    def notes(task: Task, limit_s: float) -> Verdict:
        given.append(limit_s)
        return Verdict(True, "noted")

    for name in ("kernels", "table"):
        monkeypatch.setitem(PARTS, name, Part(notes, 100, "notes"))
    task = Task(folder, card, REAL, REAL, lambda line: None)
    assert TOTAL_S < 10 * 60
    assert run_parts(["kernels"], task, time.monotonic())["kernels"].passed
    assert run_parts(["kernels"], task, time.monotonic() - TOTAL_S + 30)["kernels"].passed
    assert given[0] == 100
    assert 29 < given[1] <= 30
    late = run_parts(["kernels", "table"], task, time.monotonic() - TOTAL_S)
    assert not any(verdict.passed for verdict in late.values())
    assert "no time was left" in late["table"].figures
    assert len(given) == 2


def test_parts_go_on_after_one_that_fails(
    folder: Path, card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(task: Task, limit_s: float) -> Verdict:
        raise PartError("the driver is gone")

    monkeypatch.setitem(PARTS, "kernels", Part(breaks, 1, "breaks"))
    monkeypatch.setitem(PARTS, "table", Part(lambda *_: Verdict(False, "3 of 4"), 1, "fails"))
    monkeypatch.setitem(PARTS, "matrix", Part(lambda *_: Verdict(True, "4 of 4"), 1, "passes"))
    said: list[str] = []
    names = ["kernels", "table", "matrix"]
    verdicts = run_parts(names, Task(folder, card, REAL, REAL, said.append), time.monotonic())
    assert [verdict.passed for verdict in verdicts.values()] == [False, False, True]
    lines = [line for line in said if line.startswith(("PASS", "FAIL"))]
    assert [line.split()[:2] for line in lines[:3]] == [
        ["FAIL", "kernels"], ["FAIL", "table"], ["PASS", "matrix"],
    ]  # fmt: skip
    assert lines[3:] == lines[:3]
    assert "it could not be checked: the driver is gone" in lines[0]
    assert "PartError: the driver is gone" in (folder / "kernels.error").read_text()
    kept = json.loads((folder / "gpu_check.json").read_text())
    assert kept["card"]["name"] == "NVIDIA H200"
    assert kept["parts"]["matrix"] == {"passed": True, "figures": "4 of 4"}
    assert (folder / "gpu_check.txt").read_text().splitlines()[1:] == lines[:3]


def test_a_part_that_is_skipped_has_neither_passed_nor_failed(
    folder: Path, card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PARTS, "vllm", Part(lambda *_: Verdict(None, "no vLLM"), 1, "skipped"))
    monkeypatch.setitem(PARTS, "table", Part(lambda *_: Verdict(True, "4 of 4"), 1, "passes"))
    said: list[str] = []
    task = Task(folder, card, REAL, REAL, said.append)
    verdicts = run_parts(["vllm", "table"], task, time.monotonic())
    assert [verdict.passed for verdict in verdicts.values()] == [None, True]
    assert any(line.startswith("-- 1 of 2 parts passed, 1 skipped, ") for line in said)
    assert said[-2].startswith("SKIP vllm (")
    assert said[-2].endswith(": no vLLM")


def test_the_parent_never_imports_torch() -> None:
    code = "import sys, bench.gpu_check.command; print({'torch', 'triton'} & set(sys.modules))"
    command = [sys.executable, "-c", code]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "set()\n"
