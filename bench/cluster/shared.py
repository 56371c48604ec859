"""What jobs are told: a file in the folder of the results, which all machines share."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.cells import Cell
from bench.cluster.arguments import CHOICE
from bench.errors import SettingError

CARRIED = ("FRAGBENCH_TRACES", "FRAGBENCH_CACHE")
"""Environment variables that hold on all machines."""

HANDED_OUT = Path(".launcher")
"""In the folder of the results: what jobs are told, and what launchers write. Reports pass over
hidden folders."""
CELLS = HANDED_OUT / "cells.json"
SWEEP = "multirun.yaml"
"""Hydra's own, there."""


def hand_out(cells: Sequence[Cell], folder: Path) -> Path:
    """Writes what jobs are told into `folder`, whose absolute path is returned; no one else may
    read it. Raises SettingError where that cannot be."""
    if any(cell.config["dashboard"] for cell in cells):
        raise SettingError(
            f"dashboard=true follows runs of this machine: leave it out with {CHOICE}=, and read "
            "the results so far with `fragbench report`."
        )
    folder = folder.absolute()
    told = {
        "directory": os.getcwd(),
        "environment": {name: os.environ[name] for name in CARRIED if name in os.environ},
        "cells": {
            cell.name: {
                "config": cell.config | {"out": str(folder)},
                "out": str(cell.out.absolute()),
                "command": cell.command,
            }
            for cell in cells
        },
    }
    try:
        (folder / HANDED_OUT).mkdir(parents=True)
        with open(os.open(folder / CELLS, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            json.dump(told, file)
    except OSError as error:
        raise SettingError(f"out={folder} cannot be written: {error.strerror}.") from error
    return folder


def take_back(cells: Sequence[Cell], folder: Path) -> bool:
    """Removes what `hand_out` wrote, unless a job began or waits: whether none did."""
    place = folder / HANDED_OUT
    waits = {path.name for path in place.iterdir()} - {CELLS.name, SWEEP}
    if waits or any(cell.out.exists() for cell in cells):
        return False
    shutil.rmtree(place)
    return True


def told(folder: Path) -> dict[str, Any]:
    """What was handed out. Raises SettingError where it is not there."""
    try:
        found: dict[str, Any] = json.loads((folder / CELLS).read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(
            f"out={folder} has no {CELLS} on {os.uname().nodename}: give a folder that all "
            "machines share, under one path."
        ) from error
    return found
