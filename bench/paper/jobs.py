"""Work of a figure that is no run: several at a time, each in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from bench.device.launcher import Finished, Job, Launcher
from bench.errors import SettingError
from bench.experiment import compose_cells
from bench.paper.task import Task

TICK_S = 1.0


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
    at_once = settings.config["jobs"] or os.cpu_count() or 1
    module = target.partition(":")[0]
    results: dict[int, Any] = {}
    waiting = [Job(target, payload) for payload in payloads]
    with (
        Launcher("cpu", modules=("torch", module)) as launcher,
        task.console.status(f"0 of {len(payloads)} done") as status,
    ):
        while len(results) < len(payloads):
            while waiting and launcher.running < at_once:
                launcher.submit(waiting.pop(0))
            for event in launcher.wait(timeout=TICK_S):
                if isinstance(event, Finished):
                    results[event.job] = _result(event)
                    status.update(f"{len(results)} of {len(payloads)} done")
    task.folder.mkdir(parents=True, exist_ok=True)
    return [results[number] for number in sorted(results)]


def _result(event: Finished) -> Any:
    if event.status == "user_error":
        raise SettingError(str(event.cause))
    if event.status != "ok":
        raise RuntimeError(f"a job of the figure failed: {event.traceback or event.cause}")
    return event.result
