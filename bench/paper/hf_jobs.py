"""Jobs of a figure on the virtual GPU: several at a time, each in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

from rich.console import Console

from bench.device.launcher import Finished, Job, Launcher
from bench.device.virtual import allocator_environment, gpu_environment
from bench.errors import SettingError
from bench.gpu import Gpu

MODULES = (
    "torch",
    "bench.paper.hf_ours",
    "transformers.models.llama.modeling_llama",
)
"""Imported once, before jobs are forked."""
TICK_S = 1.0


Name = TypeVar("Name", bound=Hashable)


def on_gpu(target: str, payload: Mapping[str, Any], gpu: Gpu, alloc_conf: str) -> Job:
    """A job in the environment of a virtual GPU and of the allocator's settings."""
    return Job(target, payload, gpu_environment(gpu) | allocator_environment(alloc_conf))


def run_jobs_on_gpu(
    jobs: Mapping[Name, Job], at_once: int | None, console: Console
) -> dict[Name, Any]:
    """What the jobs return, by their names. Raises SettingError where one cannot be done."""
    waiting, results = list(jobs), dict[Name, Any]()
    names: dict[int, Name] = {}
    with (
        Launcher("virtual", modules=MODULES) as launcher,
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
