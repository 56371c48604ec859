"""`fragbench run` and `fragbench matrix`: from Hydra overrides to cells that run.

A run is a matrix of one cell. Hydra composes and sweeps; our launcher plug-in (plugin_path/), which
Hydra calls with the overrides of all cells, runs them several at a time (bench/cells.py).
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

import conf
from bench import config as schema
from bench.cells import Cell, run_cells
from bench.errors import SettingError
from bench.hydra_errors import HYDRA_ERRORS, sentence

CONF_FOLDER = Path(conf.__file__).parent
PLUGIN_PATH = Path(__file__).parent / "plugin_path"
"""Hydra finds plug-ins in a namespace package, hydra_plugins, wherever sys.path has it."""
PLAIN_WIDTH = 110
"""Columns where the output is no terminal, whose width rich would take for 80."""

NO_LABEL = ("out", "jobs", "device", "hydra")

_exit_codes: list[int] = []  # Hydra has no way to hand a return value back


def run(argv: list[str]) -> int:
    """`fragbench run`: one experiment, or several with --multirun."""
    return _main(argv)


def matrix(argv: list[str]) -> int:
    """`fragbench matrix`: every combination of comma-separated values."""
    shows = {"--cfg", "-c", "--info", "-i", "--help", "-h", "--hydra-help", "--shell-completion"}
    multirun = [] if any(a.split("=")[0] in shows for a in argv) else ["--multirun"]
    return _main([*multirun, *argv])


def _main(argv: list[str]) -> int:
    schema.register()
    sys.path.append(str(PLUGIN_PATH))
    os.environ["HYDRA_FULL_ERROR"] = "1"  # so that errors reach us, not Hydra's printer
    _exit_codes.clear()
    with tempfile.TemporaryDirectory(prefix="fragbench-") as scratch, _arguments(argv):
        application = hydra.main(
            version_base="1.3", config_path=str(CONF_FOLDER), config_name="config"
        )(_run_one)
        # Hydra writes multirun.yaml before anything is checked; results go where `out` says.
        sys.argv.append(f"hydra.sweep.dir={scratch}")
        try:
            application()
        except HYDRA_ERRORS as error:
            raise SettingError(sentence(error)) from error
    return max(_exit_codes, default=0)


@contextlib.contextmanager
def _arguments(argv: list[str]) -> Iterator[None]:
    before = sys.argv
    sys.argv = ["fragbench", *argv]
    try:
        yield
    finally:
        sys.argv = before


def _run_one(composed: DictConfig) -> None:
    config = _plain(composed)
    config["name"] = config["name"] or config["backend"].get("name")
    out = Path(config["out"]) if config["out"] else _dated_folder()
    cell = Cell(name=config["name"], config=config, out=out)
    _exit_codes.append(run_cells([cell], _console(), out))


def _plain(composed: DictConfig) -> dict[str, Any]:
    """Plain data with every interpolation resolved. Raises SettingError."""
    ours = composed.copy()
    with open_dict(ours):
        ours.pop("hydra", None)
    try:
        container = OmegaConf.to_container(ours, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise SettingError(sentence(error)) from error
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)


def _dated_folder() -> Path:
    return Path("results") / time.strftime("%Y-%m-%d") / time.strftime("%H-%M-%S")


def compose_cells(
    context: HydraContext, config: DictConfig, job_overrides: Sequence[Sequence[str]]
) -> list[Cell]:
    """The cells of a sweep, each with its whole configuration. Raises SettingError."""
    loader = context.config_loader
    composed = [loader.load_sweep_config(config, list(overrides)) for overrides in job_overrides]
    configs = [_plain(one) for one in composed]
    folder = Path(configs[0]["out"]) if configs[0]["out"] else _dated_folder()
    names = _names(job_overrides)
    return [
        Cell(name=name, config=config | {"name": name}, out=folder / name)
        for name, config in zip(names, configs, strict=True)
    ]


def run_sweep(cells: list[Cell]) -> None:
    """Runs a sweep's cells; the exit code is kept for `_main`."""
    _exit_codes.append(run_cells(cells, _console(), cells[0].out.parent))


def _names(job_overrides: Sequence[Sequence[str]]) -> list[str]:
    """A name a cell, made of what the sweep varies: backend=paged,seed=1."""
    parser = OverridesParser.create()
    rows = [parser.parse_overrides(list(overrides)) for overrides in job_overrides]
    values = [{o.get_key_element(): o.get_value_element_as_str() for o in row} for row in rows]
    varied = [
        key
        for key in values[0]
        if len({row[key] for row in values}) > 1 and key.split(".")[0] not in NO_LABEL
    ]
    keys = varied or [key for key in values[0] if key in ("backend", "workload")]
    names = [",".join(f"{key}={row[key]}" for key in keys) or "run" for row in values]
    return [name.replace("/", "_") for name in names]
