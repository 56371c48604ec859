"""Hydra's way into bench/experiment.py: all combinations of a sweep at once."""

from __future__ import annotations

from collections.abc import Sequence

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper, BasicSweeperConf
from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from bench.experiment import take_sweep


class CellLauncher(Launcher):
    """Hands a sweep to bench/experiment.py, which runs it on the fork server."""

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self._context = hydra_context
        self._config = config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        take_sweep(self._context, self._config, job_overrides)
        return [_taken(overrides) for overrides in job_overrides]


class CellSweeper(BasicSweeper):
    """Hydra's own, which composes every cell only to see whether it can be: the launcher will."""

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Left to the launcher, whose errors are the same."""


def _taken(overrides: Sequence[str]) -> JobReturn:
    result = JobReturn(overrides=list(overrides), status=JobStatus.COMPLETED)
    result.return_value = None
    return result


ConfigStore.instance().store(
    group="hydra/launcher",
    name="fragbench",
    node={"_target_": f"{CellLauncher.__module__}.{CellLauncher.__name__}"},
)
ConfigStore.instance().store(
    group="hydra/sweeper",
    name="fragbench",
    node=BasicSweeperConf(_target_=f"{CellSweeper.__module__}.{CellSweeper.__name__}"),
)
