"""Hydra's way into bench/cells.py: all combinations of a sweep at once, several at a time."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from bench.experiment import compose_cells, run_sweep


class CellLauncher(Launcher):
    """Runs a sweep on the fork server, in this process's sight."""

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self._context = hydra_context
        self._config = config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        run_sweep(compose_cells(self._context, self._config, job_overrides))
        return [_done(overrides) for overrides in job_overrides]


def _done(overrides: Sequence[str]) -> JobReturn:
    result = JobReturn(overrides=list(overrides), status=JobStatus.COMPLETED)
    result.return_value = None
    return result


ConfigStore.instance().store(
    group="hydra/launcher",
    name="fragbench",
    node={"_target_": f"{CellLauncher.__module__}.{CellLauncher.__name__}"},
)
