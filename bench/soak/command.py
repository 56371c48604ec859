"""`fragbench soak duration=6h ...` and `fragbench soak resume=DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from bench.cells import Cell, cell_python
from bench.config import check_run, from_container
from bench.device.probe import resolve_device
from bench.durations import seconds
from bench.errors import SettingError
from bench.experiment import compose_cells, make_console
from bench.hydra_errors import HYDRA_ERRORS, sentence
from bench.report.comparison import print_comparison
from bench.report.results import load_runs
from bench.setting_files import hidden, made_folder
from bench.soak.state import Soak, locked, read_soak
from bench.soak.summary import trend_sentence
from bench.soak.supervisor import Supervisor

RESUME = "resume="
TIMELINE_ROWS = 4096
ENDINGS = ("stop_after_s", "workload.num_requests", "workload.duration_s")
"""What would end a run's traffic before its time; of a trace the last chooses a part of it."""

_HELP = f"""\
usage: fragbench soak duration=6h [out=DIR] [group=option ...] [key=value ...]
       fragbench soak resume=DIR

A run of that length on its own clock: hours in minutes on the virtual GPU. A worker that dies is
restarted, and the soak goes on where it was.

  duration=6h   or 90m, 45s, 2d, or a plain number of seconds
  resume=DIR    goes on with a soak that was stopped or killed, with its own settings
  timeline_rows={TIMELINE_ROWS}   most rows of a segment's timeline; neighbours merge when full

Generated traffic goes on to the end, a trace is repeated. The rest as `fragbench run --help` says.
Ctrl-C once ends what runs and writes the summary, twice stops at once; docs/soak.md has more."""


def main(argv: list[str]) -> int:
    """`fragbench soak`: 0 if it went to its end, 1 if it failed, 130 if the user stopped it. Raises
    SettingError."""
    if any(argument in ("-h", "--help") for argument in argv):
        print(_HELP)
        return 0
    console = make_console()
    resumed = [argument for argument in argv if argument.startswith(RESUME)]
    if resumed:
        folder = _resumable(argv, resumed[-1].removeprefix(RESUME))
        with locked(folder):
            cell, soak = _resumed(folder)
            code = Supervisor(cell, soak, console).run("resume")
    else:
        cell, soak = _new(argv)
        with made_folder(cell.out), locked(cell.out):
            code = Supervisor(cell, soak, console).run("start")
    _report(cell.out, console)
    return code


def _new(argv: list[str]) -> tuple[Cell, Soak]:
    given = [argument for argument in argv if argument.startswith("duration=")]
    if not given:
        raise SettingError("soak needs a length: give duration=6h, or 90m, 45s, 2d.")
    duration_s = seconds("duration", given[-1].partition("=")[2])
    overrides = [argument for argument in argv if argument not in given]
    command = ["fragbench", "soak", *argv]
    cells, _ = compose_cells(_bounded(overrides), command)
    if len(cells) != 1:
        raise SettingError("`fragbench soak` runs one experiment: give one value of each key.")
    cell = cells[0]
    cell.config["workload"] = _endless(cell.config["workload"], duration_s, overrides)
    cell.config["stop_after_s"] = duration_s
    return cell, Soak(duration_s, cell.device, [hidden(argument) for argument in command])


def _bounded(overrides: list[str]) -> list[str]:
    if any(override.startswith("timeline_rows=") for override in overrides):
        return overrides
    return [*overrides, f"timeline_rows={TIMELINE_ROWS}"]


def _endless(workload: dict[str, Any], duration_s: float, overrides: list[str]) -> dict[str, Any]:
    """The traffic for all of that time. Raises SettingError for a setting that ends it before."""
    is_trace = "path" in workload
    for override in overrides:
        key = override.lstrip("+").partition("=")[0]
        if key in ENDINGS and not (is_trace and key == "workload.duration_s"):
            raise SettingError(
                f"{override} would end the traffic of a soak, which lasts as long as duration= "
                "says: leave it out."
            )
    if is_trace:
        return workload | {"repeat": True}
    return workload | {"duration_s": duration_s, "num_requests": None}


def _resumable(argv: list[str], given: str) -> Path:
    """The folder of a soak that is to go on. Raises SettingError."""
    others = [argument for argument in argv if not argument.startswith(RESUME)]
    if others or len(argv) > 1:
        raise SettingError(
            f"soak goes on with the settings in {RESUME}{given}: leave out "
            f"{' '.join(others or argv[1:])}."
        )
    if not given:
        raise SettingError(f"{RESUME} names no folder: give the one that `fragbench soak` wrote.")
    folder = Path(given).expanduser()
    read_soak(folder)
    return folder


def _resumed(folder: Path) -> tuple[Cell, Soak]:
    """The soak in a folder, with the settings that it began with. Raises SettingError."""
    soak = read_soak(folder)
    if soak.status == "completed":
        raise SettingError(
            f"resume={folder} has gone to its end: there is nothing to go on with; `fragbench "
            f"report {folder}` shows it."
        )
    try:
        config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        checked = from_container(config)
    except (OSError, TypeError, yaml.YAMLError, *HYDRA_ERRORS) as error:
        raise SettingError(
            f"resume={folder} cannot go on: its config.yaml cannot be used: {sentence(error)}"
        ) from error
    device = resolve_device(checked.device)
    if device != soak.device:
        raise SettingError(
            f"resume={folder} ran on device={soak.device} and this machine takes device={device}: "
            "go on where it began."
        )
    check_run(checked, device)
    cell_python(checked, device)
    soak.resumed += 1
    return Cell(config["name"], config, folder, soak.command, device), soak


def _report(folder: Path, console: Console) -> None:
    runs = load_runs(folder)
    print_comparison(runs, console)
    for run in runs:
        _say(console, trend_sentence(dict(run.summary)))
        restarts, lost = run.summary["restarts"], (run.summary["requests"] or {}).get("lost", 0)
        _say(console, f"Restarts: {restarts}; requests lost with them: {lost}.")
    _say(console, f"Results: {folder}")
    _say(console, f"Next: fragbench report {folder}")


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
