"""Work of a figure that is no run: several at a time, each in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from rich.console import Console

from bench.cells import MODULES, Cell, cell_job
from bench.device.launcher import DeviceKind, Finished, Job, Launcher
from bench.errors import SettingError
from bench.experiment import compose_cells
from bench.paper.task import Point, Task

TICK_S = 1.0
Name = TypeVar("Name", bound=Hashable)


def run_jobs(target: str, payloads: Sequence[Mapping[str, Any]], task: Task) -> list[Any]:
    """What `target` ("module:function") returns for each payload. Makes the task's folder.

    Raises SettingError where one cannot be done, and for a setting of runs, which would do nothing.
    """
    idle = next((each for each in task.overrides if each.partition("=")[0] != "jobs"), None)
    if idle:
        raise SettingError(
            f"{idle} is of no use to this figure, which makes no runs: leave it out; it "
            "takes jobs, out, path and quick."
        )
    (settings,), _ = compose_cells([*task.overrides, f"out={task.folder}"], task.command)
    jobs = {number: Job(target, payload) for number, payload in enumerate(payloads)}
    modules = "torch", target.partition(":")[0]
    results = run_all(jobs, "cpu", modules, settings.config["jobs"], task.console)
    task.folder.mkdir(parents=True, exist_ok=True)
    return [results[number] for number in jobs]


def run_points(
    target: str, points: Sequence[tuple[Point, Mapping[str, Any]]], task: Task
) -> dict[str, Any]:
    """What `target` returns for the run of each point, by its name: its payload is a run's, with
    what comes beside the point. For the virtual GPU alone. Raises SettingError."""
    cells = task.cells([point for point, _ in points])
    other = next((cell.device for cell in cells if cell.device != "virtual"), None)
    if other is not None:
        raise SettingError(
            f"device={other}: this figure is of the virtual GPU alone: leave device out."
        )
    jobs = {
        cell.name: _job_of(target, cell, also)
        for cell, (_, also) in zip(cells, points, strict=True)
    }
    modules = (*MODULES, target.partition(":")[0])
    return run_all(jobs, "virtual", modules, cells[0].config["jobs"], task.console)


def _job_of(target: str, cell: Cell, also: Mapping[str, Any]) -> Job:
    job = cell_job(cell, None)
    return replace(job, target=target, payload={**job.payload, **also})


def run_all(
    jobs: Mapping[Name, Job],
    device: DeviceKind,
    modules: Sequence[str],
    at_once: int | None,
    console: Console,
) -> dict[Name, Any]:
    """What jobs return, by their names; `at_once` of them run at a time (None: one a core), in
    processes that import `modules` once. Raises SettingError where one cannot be done."""
    waiting, names = list(jobs), dict[int, Name]()
    results: dict[Name, Any] = {}
    with (
        Launcher(device, modules=modules) as launcher,
        console.status(f"0 of {len(jobs)} done") as status,
    ):
        while len(results) < len(jobs):
            while waiting and launcher.running < (at_once or os.cpu_count() or 1):
                name = waiting.pop(0)
                names[launcher.submit(jobs[name])] = name
            for event in launcher.wait(timeout=TICK_S):
                if isinstance(event, Finished):
                    results[names[event.job]] = _result(event)
                    status.update(f"{len(results)} of {len(jobs)} done")
    return results


def _result(event: Finished) -> Any:
    if event.status == "user_error":
        raise SettingError(str(event.cause))
    if event.status != "ok":
        raise RuntimeError(f"a job of the figure failed: {event.traceback or event.cause}")
    return event.result
