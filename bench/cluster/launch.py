"""Has a launcher of Hydra's run cells, and says what came of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from bench.cells import FAILED, Cell, show_results
from bench.cluster.arguments import CHOICE, Launcher
from bench.cluster.shared import HANDED_OUT, hand_out, take_back
from bench.errors import SettingError
from bench.hydra_errors import HYDRA_ERRORS, sentence
from bench.report.results import SUMMARY
from bench.setting_files import made_folder

Sweep = Callable[[Launcher, Sequence[Cell], Path], None]
"""Has Hydra run cells that were handed out into a folder."""


def launch(
    launcher: Launcher, cells: Sequence[Cell], folder: Path, console: Console, sweep: Sweep
) -> int:
    """Runs cells that were checked; returns the exit code, as for cells that run here.

    Raises SettingError where nothing could be launched; nothing is left then.
    """
    with made_folder(folder):
        return _launch(launcher, cells, hand_out(cells, folder), console, sweep)


def _launch(
    launcher: Launcher, cells: Sequence[Cell], folder: Path, console: Console, sweep: Sweep
) -> int:
    runs = f"{len(cells)} run{'s' if len(cells) > 1 else ''}"
    console.print(f"{runs} with {CHOICE}={launcher.name}", highlight=False)
    try:
        sweep(launcher, cells, folder)
    except KeyboardInterrupt:
        take_back(cells, folder)
        raise
    except Exception as error:  # what a launcher raises for a job that died is its own
        said = _said_by(launcher, error)
        if take_back(cells, folder):
            raise SettingError(said) from error
        console.print(said, style="yellow", markup=False, soft_wrap=True)
    return _show_outcome(cells, folder, console)


def _said_by(launcher: Launcher, error: Exception) -> str:
    if isinstance(error, SettingError):
        return str(error)
    if isinstance(error, HYDRA_ERRORS):
        return sentence(error)
    first = str(error).strip().partition("\n")[0]
    return f"{CHOICE}={launcher.name}: {type(error).__name__}: {first}"


def _show_outcome(cells: Sequence[Cell], folder: Path, console: Console) -> int:
    """Prints what came of all cells and returns the exit code."""
    statuses = [_status(cell) for cell in cells]
    left = statuses.count(None)
    if left:
        console.print(
            f"{left} of {len(cells)} cells have no result in {folder}: their jobs were stopped, "
            f"never began or still run; what launchers wrote is in {folder / HANDED_OUT}.",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
    show_results(folder, console, empty=not any(cell.out.exists() for cell in cells))
    return 0 if all(status == "completed" for status in statuses) else FAILED


def _status(cell: Cell) -> str | None:
    try:
        summary = json.loads((cell.out / SUMMARY).read_text(encoding="utf-8"))
    except OSError:
        return None
    return str(summary["status"])
