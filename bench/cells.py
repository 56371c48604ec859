"""Cells of a matrix: each a run in a process of its own, several at a time, none of which can
take the others down."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from bench.config import from_container
from bench.device.launcher import DeviceKind, Finished, Job, Launcher, Progress
from bench.device.probe import resolve_device
from bench.device.virtual import allocator_environment, gpu_environment
from bench.errors import SettingError
from bench.labels import labels
from bench.metrics.records import write_json
from bench.progress import ProgressView
from bench.report.comparison import print_comparison
from bench.report.results import load_runs

MODULES = ("torch", "bench.run", "backends.contiguous", "backends.bucketed", "backends.paged",
           "workloads.mixed", "workloads.trace")  # fmt: skip
"""Imported once, before runs are forked."""

FAILED, INTERRUPTED = 1, 130


@dataclass(slots=True)
class Cell:
    """One run to be: its name, configuration and folder."""

    name: str
    config: dict[str, Any]
    out: Path
    device: DeviceKind = "virtual"
    status: str | None = None


@dataclass(slots=True)
class _Matrix:
    """Cells by where they are."""

    waiting: deque[Cell]
    running: dict[int, Cell] = field(default_factory=dict)
    done: list[tuple[Cell, Finished]] = field(default_factory=list)


def run_cells(cells: list[Cell], console: Console, folder: Path) -> int:
    """Runs cells and prints what came of them; returns the exit code.

    Every configuration is checked before the first one starts. A wrong setting that only a run can
    find (a trace's line, a model that does not fit) is that cell's result; when no cell could use
    its settings it is raised as SettingError and nothing is written.
    """
    jobs = cells[0].config["jobs"] or os.cpu_count() or 1
    for cell in cells:
        _check(cell)
    kinds = list(dict.fromkeys(cell.device for cell in cells))
    finished: list[tuple[Cell, Finished]] = []
    interrupted = False
    for kind in kinds:  # one launcher a device kind
        mine = deque(cell for cell in cells if cell.device == kind)
        interrupted = _run_kind(kind, mine, finished, jobs, len(cells), console)
        if interrupted:
            break
    refused = [(cell, event) for cell, event in finished if event.status == "user_error"]
    if finished and len(refused) == len(finished):
        raise SettingError(" ".join(dict.fromkeys(_cause(event) for _, event in refused)))
    for cell, event in refused:
        _write_failure(cell, event)
    _report(folder, console, empty=not finished)
    if interrupted:
        return INTERRUPTED
    return 0 if all(cell.status == "completed" for cell in cells) else FAILED


def _check(cell: Cell) -> None:
    """Raises SettingError for a configuration or a folder that cannot be used."""
    config = from_container(cell.config)
    cell.device = resolve_device(config.device)
    if cell.out.exists() and (not cell.out.is_dir() or any(cell.out.iterdir())):
        raise SettingError(
            f"out={cell.out} is not an empty folder: results are never overwritten; choose "
            "another or remove it."
        )


def _run_kind(
    kind: DeviceKind,
    waiting: deque[Cell],
    finished: list[tuple[Cell, Finished]],
    jobs: int,
    total: int,
    console: Console,
) -> bool:
    """Runs the cells of one device kind; True when the user stopped them."""
    matrix = _Matrix(waiting, done=finished)
    interrupted = False
    with (
        tempfile.TemporaryDirectory(prefix="fragbench-logs-") as logs,
        Launcher(kind, modules=MODULES) as launcher,
        ProgressView(console, total, len(finished)) as view,
    ):
        while matrix.running or (matrix.waiting and not interrupted):
            try:
                while matrix.waiting and len(matrix.running) < jobs and not interrupted:
                    cell = matrix.waiting.popleft()
                    number = launcher.submit(_job(cell, Path(logs)))
                    matrix.running[number] = cell
                    view.started(cell.name)
                for event in launcher.wait(timeout=0.5):
                    if isinstance(event, Progress):
                        view.progress(matrix.running[event.job].name, event.data)
                    else:
                        cell = _finish(matrix, event, Path(logs))
                        view.finished(cell.name, cell.status)
                view.tick()
            except KeyboardInterrupt:
                if interrupted:
                    raise
                interrupted = True
                view.note("stopping: what is done is kept; press Ctrl-C again to stop at once")
                for number in matrix.running:
                    launcher.terminate(number, grace_s=30.0)
    return interrupted


def _job(cell: Cell, logs: Path) -> Job:
    config = from_container(cell.config)
    conf = ",".join(filter(None, (cell.config["backend"].get("alloc_conf"), config.alloc_conf)))
    environment = allocator_environment(conf)
    if cell.device == "virtual":
        environment |= gpu_environment(config.gpu)
    payload = {"config": cell.config, "out": str(cell.out), "device": cell.device}
    return Job("bench.run:run", payload, environment, log=_log(cell, logs))


def _log(cell: Cell, logs: Path) -> Path:
    return logs / f"{cell.name}.log"


def _finish(matrix: _Matrix, event: Finished, logs: Path) -> Cell:
    """Notes how a cell ended, and leaves a result with its cause if the run itself could not."""
    cell = matrix.running.pop(event.job)
    matrix.done.append((cell, event))
    cell.status = "failed"
    if event.status == "ok":
        cell.status = json.loads((cell.out / "summary.json").read_text(encoding="utf-8"))["status"]
    elif event.status != "user_error":
        _write_failure(cell, event)
    log = _log(cell, logs)
    if cell.out.is_dir() and log.exists():
        shutil.copyfile(log, cell.out / "run.log")
    return cell


def _write_failure(cell: Cell, event: Finished) -> None:
    cell.out.mkdir(parents=True, exist_ok=True)
    if not (cell.out / "config.yaml").exists():
        text = yaml.safe_dump(cell.config, sort_keys=False, allow_unicode=True)
        (cell.out / "config.yaml").write_text(text, encoding="utf-8")
    write_json(
        cell.out / "summary.json",
        {"status": "failed", "cause": _cause(event), **labels(cell.config, cell.device)},
    )


def _cause(event: Finished) -> str:
    if event.status == "user_error":
        return event.cause or "a setting cannot be used"
    if event.signal:
        return f"the run was killed by {event.signal}"
    if event.status == "interrupted":
        return "stopped by the user before the run began"
    what = f"{event.error_type}: {event.cause}" if event.error_type else event.cause
    return what or f"the run ended with exit code {event.exit_code}"


def _report(folder: Path, console: Console, *, empty: bool) -> None:
    if empty:
        console.print("Nothing ran.")
        return
    print_comparison(load_runs(folder), console)
    console.print(f"Results: {folder}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"Next: fragbench report {folder}", markup=False, soft_wrap=True)
