"""Jobs and commands that fail or hang end, and say why."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.gpu_check.card import Device
from bench.gpu_check.processes import Jobs, PartError, run_fragbench
from tests.virtual_gpu import skip_without_virtual_gpu

CPU = Device("cpu")


def test_a_jobs_error_is_one_line(tmp_path: Path) -> None:
    with Jobs(CPU, 60, print, tmp_path / "log") as jobs:
        with pytest.raises(PartError, match=r"^KeyError: 'dtype'$"):
            jobs.run("bench.gpu_check.token_job:greedy_tokens", {})
        (first, second) = jobs.run_all("builtins:len", [({"a": 1}, ""), ({}, "")])
    assert (first.result, second.result) == (1, 0)
    assert "KeyError" in (tmp_path / "log").read_text()


def test_jobs_that_hang_are_given_up(tmp_path: Path) -> None:
    """They wait for a signal that does not come."""
    with Jobs(CPU, 1, print) as jobs:
        (hung,) = jobs.run_all("tests.bench.gpu_check.hanging_job:hang", [({}, "")])
        assert hung.status == "killed"
        assert "not done in the time" in str(hung.cause)


def test_a_commands_output_is_kept_and_passed_on(tmp_path: Path) -> None:
    said: list[str] = []
    code = run_fragbench(["figure", "fig99"], tmp_path / "log", 120, said.append)
    assert code == 2
    assert said[0] == "fragbench figure fig99"
    assert "fig99" in said[-1]
    assert (tmp_path / "log").read_text().splitlines() == said[1:]


def test_a_command_that_hangs_is_ended(tmp_path: Path) -> None:
    skip_without_virtual_gpu()
    with pytest.raises(PartError, match="fragbench exec was not done in 2 s"):
        run_fragbench(["exec", "--", "sleep", "600"], tmp_path / "log", 2, print)
