"""The real matrix: settings that can be used, and what counts as a result."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.device.probe import probe
from bench.experiment import compose_cells
from bench.gpu_check import matrix
from bench.gpu_check.card import REAL, Card
from bench.gpu_check.part import Task
from bench.gpu_check.processes import PartError

SUMMARY = {
    "status": "completed",
    "cause": None,
    "device": "cuda",
    "time": "measured",
    "requests": {"completed": 12},
    "throughput": {"output_tokens_per_s": 1234.5},
    "batch": {"mean": 7.25},
}
ALL: dict[str, dict[str, Any]] = dict.fromkeys(matrix.BACKENDS, SUMMARY)


@pytest.mark.parametrize("name", ["NVIDIA H200", "NVIDIA Card of 2030"])
def test_its_settings_compose(card: Card, name: str, tmp_path: Path) -> None:
    asked = matrix.overrides(replace(card, name=name))
    where = ["--multirun", "device=cpu", f"out={tmp_path / 'out'}"]
    cells, _ = compose_cells([*where, *asked], [])
    assert [cell.config["backend"]["name"] for cell in cells] == list(matrix.BACKENDS)
    assert {cell.config["gpu"]["device_name"] for cell in cells} == {name}


def test_every_backend_must_have_served_with_measured_times() -> None:
    verdict = matrix.judge(ALL)
    assert verdict.passed
    assert "paged: 12 served, 1,234 tokens/s (measured), batch 7.2" in verdict.figures
    assert not matrix.judge(dict(list(ALL.items())[1:])).passed


@pytest.mark.parametrize(
    "change",
    [
        {"time": "modelled"},
        {"device": "virtual"},
        {"requests": {"completed": 0}},
        {"status": "failed", "cause": "out of memory", "requests": None},
    ],
    ids=str,
)
def test_a_cell_that_did_not_fails_it(change: dict[str, Any]) -> None:
    changed = copy.deepcopy(ALL) | {"vmm": SUMMARY | change}
    verdict = matrix.judge(changed)
    assert not verdict.passed
    if change.get("cause"):
        assert "vmm failed: out of memory" in verdict.figures


@pytest.mark.skipif(bool(probe().gpu_names), reason="this machine has a GPU")
def test_without_a_gpu_it_says_where_to_look(card: Card, tmp_path: Path) -> None:
    said: list[str] = []
    task = Task(tmp_path, card, REAL, REAL, said.append)
    with pytest.raises(PartError, match=r"exit code 2 and no results, see .*matrix\.log"):
        matrix.check(task, 100)
    assert "device=cuda needs an NVIDIA GPU" in said[-1]
