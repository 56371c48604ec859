"""How cards are divided: exactly, by the virtual GPU; else by what is known without one.

Each division is that of a run (bench/engine/memory_plan.py), made in a process of its own. Without
a virtual GPU there is an upper bound of the KV budget: activations, workspace and what sources set
aside would take of it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from bench.cells import MODULES, Cell, cell_environment
from bench.config import Config, from_container
from bench.device.launcher import Job
from bench.paper.jobs import run_all
from bench.traffic.estimate import most_kv_bytes

JOB = "bench.plan.division_job"
CONFIGURED = "configured"
"""The name of the configuration as it was asked for."""


class Division(NamedTuple):
    """Bytes on one GPU; None where not known, or where there is no division (`refused` says why).
    `how` is `exact`, `upper bounds` or `as kv_budget sets them`; `pool_bytes` is what sequences can
    be given of the budget, None where the backend refused it (`backend_refused`)."""

    how: str
    token_bytes: int
    usable_bytes: int
    weights_bytes: int
    kv_budget_bytes: int | None = None
    workspace_bytes: int | None = None
    activation_peak_bytes: int | None = None
    sources_bytes: int | None = None
    held_back_bytes: int | None = None
    headroom_bytes: int | None = None
    pool_bytes: int | None = None
    prefill: str | None = None
    largest_step_tokens: int | None = None
    refused: str | None = None
    backend_refused: str | None = None

    @property
    def live_tokens(self) -> int | None:
        """Tokens whose K and V fit the budget."""
        return None if self.kv_budget_bytes is None else self.kv_budget_bytes // self.token_bytes


def changed(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with other settings, each named from the top ("engine.prefill")."""
    other: dict[str, Any] = copy.deepcopy(dict(config))
    for setting, value in changes.items():
        *sections, key = setting.split(".")
        inner = other
        for section in sections:
            inner = inner[section]
        inner[key] = value
    return other


def divide_exactly(
    variants: Mapping[str, dict[str, Any]], at_once: int | None, console: Console
) -> dict[str, Division]:
    """The division of each configuration by its name; those that are the same are made once.

    Raises SettingError, or a plug-in's error, where the one called `configured` has a setting that
    cannot be used.
    """
    names = {_key(config): name for name, config in reversed(list(variants.items()))}
    jobs = {name: _job(name, variants[name]) for name in names.values()}
    found = run_all(jobs, "virtual", (*MODULES, JOB), at_once, console)
    return {
        name: _exact(from_container(config), found[names[_key(config)]])
        for name, config in variants.items()
    }


def bounded(config: Config) -> Division:
    """What is known without a virtual GPU."""
    most = most_kv_bytes(config)
    refused = None if most else "the weights alone do not fit"
    how = "upper bounds" if config.kv_budget is None else "as kv_budget sets them"
    return _known(config, how)._replace(kv_budget_bytes=most, refused=refused)


def _job(name: str, config: dict[str, Any]) -> Job:
    function = "divide" if name == CONFIGURED else "divide_variant"
    cell = Cell(name, config, Path())
    return Job(f"{JOB}:{function}", {"config": config}, cell_environment(cell))


def _exact(config: Config, found: Mapping[str, Any]) -> Division:
    known = {key: value for key, value in found.items() if key in Division._fields}
    return _known(config, "exact")._replace(**known)


def _known(config: Config, how: str) -> Division:
    """What the model and the card are, divided or not."""
    return Division(
        how,
        token_bytes=config.model.kv_bytes_per_token(config.kv_dtype, config.tensor_parallel),
        usable_bytes=config.gpu.usable_bytes,
        weights_bytes=config.model.weight_bytes(config.weight_dtype, config.tensor_parallel),
    )


def _key(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True, default=str)
