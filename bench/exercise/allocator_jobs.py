"""Jobs of the exercises that use the allocator by hand: each a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.config import Config, from_container
from bench.device.launcher import DeviceKind, Job
from bench.device.virtual import allocator_environment, gpu_environment
from bench.errors import SettingError
from bench.experiment import compose_cells
from bench.paper.jobs import Name, run_all
from bench.paper.task import DEFAULTS, Task

MODULES = ("torch", "bench.exercise.fragment_job")
GPU = "gpu=a100_40gb"


@dataclass(frozen=True, slots=True)
class Setup:
    """Where the jobs run."""

    config: Config
    device: DeviceKind

    @property
    def alloc_conf(self) -> str:
        """The user's settings of the allocator."""
        return self.config.alloc_conf


def compose(task: Task, exercise: str) -> Setup:
    """The settings, checked. Raises SettingError."""
    asked = [*DEFAULTS, GPU, *task.overrides, f"out={task.folder}"]
    (cell,), _ = compose_cells(asked, task.command)
    if cell.device == "cpu":
        raise no_allocator(cell.config["device"], exercise)
    return Setup(from_container(cell.config), cell.device)


def no_allocator(device: str, exercise: str) -> SettingError:
    """Why an exercise is not done on the CPU."""
    return SettingError(
        f"device={device}: exercise {exercise} is of PyTorch's CUDA caching allocator, which the "
        "CPU does not use: take device=virtual or device=cuda."
    )


def run_jobs(
    task: Task,
    setup: Setup,
    target: str,
    cases: Mapping[Name, tuple[str, Mapping[str, Any]]],
    at_once: int | None = None,
) -> dict[Name, Any]:
    """What `target` returns for each case's allocator settings and payload; `at_once` of them at a
    time (None: as `jobs` says), one on a card."""
    at_once = 1 if setup.device == "cuda" else at_once or setup.config.jobs
    jobs = {
        name: Job(target, payload, _environment(setup, alloc_conf))
        for name, (alloc_conf, payload) in cases.items()
    }
    return run_all(jobs, setup.device, MODULES, at_once, task.console)


def _environment(setup: Setup, alloc_conf: str) -> dict[str, str]:
    environment = allocator_environment(alloc_conf)
    if setup.device == "virtual":
        environment |= gpu_environment(setup.config.gpu)
    return environment
