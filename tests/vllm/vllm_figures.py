"""Figures and presets of an unmodified vLLM, on the virtual GPU: `make test-vllm`."""

from __future__ import annotations

import csv
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from bench.cli import main
from bench.experiment import CONF_FOLDER, compose_cells
from bench.paper import vllm_beside, vllm_settings, vllm_utilization, vllm_utilization_drawing
from bench.paper.task import Point, Task
from bench.paper.vllm_beside_cases import CASES, ENGINES
from bench.paper.vllm_settings_cases import STUDIES
from bench.paper.vllm_utilization_cases import (
    COMPLETED,
    DIED,
    FREE,
    KEPT,
    SYSTEMS,
    WANTED,
)

MIB = 1 << 20
PRESETS = sorted((CONF_FOLDER / "experiment").glob("vllm_*.yaml"))


def read(path: Path) -> dict[tuple[str, str], str]:
    """What is said of each system and quantity; "" where nothing."""
    with path.open(encoding="utf-8", newline="") as file:
        return {(row["system"], row["quantity"]): row["ours"] for row in csv.DictReader(file)}


@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)
def test_every_preset_composes_by_the_command_in_its_header(preset: Path, tmp_path: Path) -> None:
    command = preset.read_text(encoding="utf-8").splitlines()[2].removeprefix("# fragbench ")
    kind, *arguments = shlex.split(command)
    assert kind == "matrix"
    cells, _ = compose_cells(["--multirun", *arguments, f"out={tmp_path / 'here'}"], [])
    assert "vllm" in {cell.config["engine"]["name"] for cell in cells}
    assert len(cells) >= 4


def test_every_run_of_every_figure_composes(tmp_path: Path) -> None:
    task = Task(tmp_path / "here", Console(), [])
    settings = [
        vllm_settings._point(task, study, value) for study in STUDIES for value in study.values
    ]
    beside = [vllm_beside._point(task, case, engine) for case in CASES for engine in ENGINES]
    points: tuple[list[Point], ...] = (settings, beside)
    for each in points:
        assert len(task.cells(each)) == len(each)


def test_at_97_percent_the_default_allocator_kills_what_expandable_segments_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step of 8,192 tokens: the MLP's gate and up projections are 2 x 14,336 wide, 2 bytes each.
    40 requests are a quarter of the figure's own."""
    for module in (vllm_utilization, vllm_utilization_drawing):
        monkeypatch.setattr(module, "UTILIZATIONS", (0.97,))
    out = tmp_path / "here"
    assert main(["figure", "vllm_utilization", "quick=true", f"out={out}"]) == 0
    assert (out / "vllm_utilization.png").stat().st_size > 10_000
    found = read(out / "vllm_utilization.csv")
    default, expandable = (system.label for system in SYSTEMS)
    wanted, free, kept = (float(found[default, name]) for name in (WANTED, FREE, KEPT))
    assert wanted * MIB == 2 * 14336 * 8192 * 2
    assert free < wanted < free + kept
    assert found[default, COMPLETED] == "0"
    assert (expandable, DIED) not in found
    assert found[expandable, COMPLETED] == "40"
    capsys.readouterr()
    assert main(["incident", str(out / "runs" / "default,utilization=0.97")]) == 0
    report = capsys.readouterr().out
    assert "allocator where the run ended" in report
    assert "Set alloc_conf=expandable_segments:True" in report
