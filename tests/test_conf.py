"""Every option of every group and every preset is composed, converted, made and run."""

from __future__ import annotations

import io
import json
import re
import shlex
from pathlib import Path

import pytest
from hydra.utils import instantiate
from rich.console import Console

from bench.cells import Cell, run_cells
from bench.config import from_container
from bench.experiment import CONF_FOLDER, compose_cells
from tests.virtual_gpu import skip_without_virtual_gpu

GROUPS = ("backend", "workload", "model", "gpu", "engine", "driver", "costs")
OPTIONS = [
    (group, path.stem)
    for group in GROUPS
    for path in sorted((CONF_FOLDER / group).glob("*.yaml"))
    if (group, path.stem) != ("engine", "vllm")  # needs vLLM: tests/vllm
]
PRESETS = sorted((CONF_FOLDER / "experiment").glob("*.yaml"))
FAST = ("device=virtual", "stop_after_s=2", "sample_interval_s=0.5")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    line = '{{"timestamp": {}, "input_length": 300, "output_length": 20, "hash_ids": []}}\n'
    path = tmp_path_factory.mktemp("traces") / "tiny.jsonl"
    path.write_text("".join(line.format(ms) for ms in range(0, 3000, 100)), encoding="utf-8")
    return str(path)


def option_arguments(group: str, option: str, trace: str) -> list[str]:
    arguments = [f"{group}={option}", *FAST]
    if (group, option) == ("workload", "trace"):
        arguments.append(f"workload.path={trace}")
    if (group, option) == ("driver", "locust"):
        arguments += ["stop_after_s=40", "time_scale=20"]  # something completes by then
    return arguments


def header(preset: Path) -> tuple[str, list[str]]:
    """The command and its arguments that a preset's third line gives."""
    lines = preset.read_text(encoding="utf-8").splitlines()
    match = re.fullmatch(r"# fragbench (run|matrix) (.+)", lines[2])
    assert match, f"{preset.name}: line 3 is to be the command that runs it"
    arguments = shlex.split(match[2])
    assert f"experiment={preset.stem}" in arguments
    return match[1], arguments


def preset_arguments(preset: Path, trace: str) -> list[str]:
    command, arguments = header(preset)
    text = preset.read_text(encoding="utf-8")
    if "override /workload: trace" in text or "workload=trace" in arguments:
        arguments.append(f"workload.path={trace}")
    return [*(["--multirun"] if command == "matrix" else []), *arguments, *FAST]


def composed(arguments: list[str], where: Path, name: str) -> list[Cell]:
    cells, _ = compose_cells(arguments, ["fragbench"])
    for cell in cells:
        cell.name = f"{name}:{cell.name}"
        cell.out = where / cell.name
    return cells


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_option_makes_what_it_configures(group: str, option: str, trace: str) -> None:
    (cell,), _ = compose_cells(option_arguments(group, option, trace), ["fragbench"])
    config = from_container(cell.config)
    assert instantiate(cell.config["backend"], _convert_="all").name == config.backend["name"]
    assert instantiate(cell.config["workload"], _convert_="all").name
    named = group not in ("costs", "workload")
    assert not named or cell.config[group]["name"] == option


def test_every_option_and_preset_runs(trace: str, tmp_path: Path) -> None:
    """In one matrix, so that torch is imported once; presets by the command in their header."""
    skip_without_virtual_gpu()
    cells: list[Cell] = []
    for group, option in OPTIONS:
        arguments = option_arguments(group, option, trace)
        cells += composed(arguments, tmp_path, f"{group}={option}")
    for preset in PRESETS:
        if preset.stem.startswith("vllm_"):  # tests/vllm/vllm_figures.py
            continue
        cells += composed(preset_arguments(preset, trace), tmp_path, f"experiment={preset.stem}")
    run_cells(cells, Console(file=io.StringIO()), tmp_path)
    assert {cell.name: cell.cause for cell in cells if cell.status != "completed"} == {}
    for cell in cells:
        summary = json.loads((cell.out / "summary.json").read_text(encoding="utf-8"))
        counts = dict(summary["requests"])
        assert counts.pop("sent") == sum(counts.values()) > 0, cell.name


@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)
def test_a_preset_says_first_what_it_answers(preset: Path) -> None:
    lines = preset.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# @package _global_"
    assert re.match(r"# .+\?", lines[1])


@pytest.mark.parametrize(
    "path",
    sorted(CONF_FOLDER.glob("*/*.yaml")),
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_an_option_says_first_what_it_is_and_is_short(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert len(lines) <= 26
