"""What a launcher calls for each cell, perhaps on another machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.cells import Cell, check_cells, check_folder, run_cells, write_failure
from bench.cluster.shared import told
from bench.errors import SettingError


def run_cell(composed: Mapping[str, Any]) -> None:
    """A job: the cell of this name, as a run on this machine.

    Raises SettingError where the folder is not shared or the cell's is taken; any other setting
    that cannot be used is the cell's result.
    """
    said = told(Path(composed["out"]))
    os.environ.update(said["environment"])
    if os.path.isdir(said["directory"]):
        os.chdir(said["directory"])  # what relative paths were meant from
    cell = _cell(composed["name"], said["cells"][composed["name"]])
    check_folder(cell.out)
    try:
        check_cells([cell], cell.out)
        run_cells([cell], Console(), cell.out, show=False)
    except SettingError as error:
        cell.status, cell.cause = "failed", str(error)
        write_failure(cell)
    print(f"{cell.name}: {cell.status}" + (f": {cell.cause}" if cell.cause else ""), flush=True)


def _cell(name: str, said: dict[str, Any]) -> Cell:
    return Cell(name, said["config"], Path(said["out"]), said["command"])
