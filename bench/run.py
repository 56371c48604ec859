"""One run, in a process of its own: from a configuration to the files of a run.

Everything that a user can get wrong is found before the first file is written.
"""

from __future__ import annotations

import os
import platform
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, cast

import torch
import yaml
from hydra.errors import InstantiationException
from hydra.utils import instantiate

from backends.base import Backend, KvLayout
from bench.config import Config, from_container
from bench.costs import CostModel
from bench.device.job import report_progress
from bench.engine.activations import Activations, record
from bench.engine.driver import Stopped, drive
from bench.engine.engine import Engine
from bench.engine.executor import ModelledExecutor
from bench.engine.incidents import IncidentLog
from bench.engine.memory_plan import (
    MemoryPlan,
    check_weights_fit,
    load_weights,
    plan_gpu_memory,
    plan_host_memory,
)
from bench.engine.scheduler import Limits
from bench.errors import SettingError
from bench.labels import labels
from bench.metrics import summary
from bench.metrics.accounting import MemoryAccount
from bench.metrics.allocator import AllocatorProbe
from bench.metrics.recorder import Recorder
from bench.metrics.records import write_json
from workloads.base import Request, Workload, WorkloadError

CHUNKED_TOKEN_BUDGET = 2048
PROGRESS_S = 0.25


def run(payload: dict[str, Any]) -> None:
    """Runs `payload["config"]` on `payload["device"]` and leaves its files in `payload["out"]`.

    Raises SettingError, BackendError or WorkloadError before anything is written.
    """
    started = time.monotonic()
    config = from_container(payload["config"])
    workload: Workload = _instantiate(payload["config"]["workload"], "workload")
    backend: Backend = _instantiate(payload["config"]["backend"], "backend")
    limits = resolve_limits(config, backend)
    first, requests = _peek(workload.requests(config.seed))
    if first is None:
        raise WorkloadError(f"workload={workload.name} has no requests: widen its limits.")
    memory = _Memory(config, backend, limits, payload["device"])
    folder = Path(payload["out"])
    folder.mkdir(parents=True, exist_ok=True)
    _write_setting_files(folder, payload, memory.plan)
    facts = {
        "status": "completed",
        "cause": None,
        **labels(payload["config"], payload["device"]),
        "workload": workload.name,
        **memory.facts(config),
    }
    _Run(config, backend, limits, memory, folder, started, facts).go(requests)


def resolve_limits(config: Config, backend: Backend) -> Limits:
    """The engine's limits with what the backend prefers filled in. Raises SettingError."""
    engine = config.engine
    prefill = cast(Literal["whole", "chunked"], engine.prefill or backend.prefill)
    budget = engine.token_budget
    if prefill == "whole":
        budget = budget or config.max_model_len
        if budget < config.max_model_len:
            raise SettingError(
                f"engine.token_budget={budget} is below max_model_len={config.max_model_len} "
                "with engine.prefill=whole, so the longest prompt could never run: raise it, "
                "lower max_model_len or set engine.prefill=chunked."
            )
    else:
        budget = budget or max(CHUNKED_TOKEN_BUDGET, engine.max_num_seqs)
        if budget < engine.max_num_seqs:
            raise SettingError(
                f"engine.token_budget={budget} is below engine.max_num_seqs="
                f"{engine.max_num_seqs}, so that not every sequence could decode: raise the "
                "first or lower the second."
            )
    return Limits(
        prefill=prefill,
        token_budget=budget,
        max_num_seqs=engine.max_num_seqs,
        max_live_tokens=engine.max_live_tokens,
        on_oom=cast(Literal["queue", "fail"], engine.on_oom),
    )


class _Memory:
    """The device's memory set up for a run: weights loaded, activations known, KV started."""

    def __init__(self, config: Config, backend: Backend, limits: Limits, device: str) -> None:
        self.on_gpu = device in ("virtual", "cuda")
        self.probe = AllocatorProbe() if self.on_gpu else None
        self.activations: Activations | None = None
        self.plan = (
            self._start_gpu(config, backend, limits)
            if self.on_gpu
            else plan_host_memory(config)
        )
        self.token_bytes = config.model.kv_bytes_per_token(
            config.kv_dtype, config.tensor_parallel
        )
        layout = KvLayout(
            layers=config.model.layers,
            token_bytes=self.token_bytes,
            max_model_len=config.max_model_len,
            budget_bytes=self.plan.kv_budget_bytes,
            device="cuda" if self.on_gpu else "cpu",
        )
        backend.start(layout)
        if self.probe:
            self.probe.start()

    def _start_gpu(self, config: Config, backend: Backend, limits: Limits) -> MemoryPlan:
        usable, _ = torch.cuda.mem_get_info()
        check_weights_fit(config, usable)
        bucketed = config.engine.activation_buckets
        if bucketed is None:
            bucketed = backend.activation_buckets
        trace = record(config.model, config.tensor_parallel)
        self.activations = Activations(
            trace,
            bucketed=bucketed,
            ages="garbage_collection_threshold" in alloc_conf(config, backend.alloc_conf),
            driver_calls=lambda: sum(self.driver_calls().values()),
        )
        self.weights = load_weights(config)
        decodes = limits.max_num_seqs if limits.prefill == "whole" else 0
        return plan_gpu_memory(
            config, self.activations, limits.token_budget + decodes, limits.max_num_seqs, usable
        )

    def facts(self, config: Config) -> dict[str, Any]:
        """What summary.json says of memory's division."""
        return {
            "kv_budget_bytes": self.plan.kv_budget_bytes,
            "kv_bytes_per_token": self.token_bytes,
            "weights_bytes": self.plan.weights_bytes,
            "workspace_bytes": self.plan.workspace_bytes,
            "activation_peak_bytes": self.plan.activation_peak_bytes,
            "held_back_bytes": self.plan.held_back_bytes,
        }

    def driver_calls(self) -> dict[str, int]:
        """Driver calls by kind since the process began; none are made for host memory."""
        return self.probe.driver_calls() if self.probe else {}

    def allocator_row(self) -> dict[str, Any]:
        """The allocator's part of a timeline row; null without one."""
        return self.probe.row() if self.probe else {}

    def allocator_counters(self) -> dict[str, Any]:
        """The cheap part of it, for incidents."""
        return self.probe.counters() if self.probe else {}

    def allocator_summary(self) -> dict[str, Any] | None:
        """summary.json's `allocator`; null without one."""
        return self.probe.summary() if self.probe else None


class _Run:
    """The engine with everything that listens to it, for one run."""

    def __init__(
        self,
        config: Config,
        backend: Backend,
        limits: Limits,
        memory: _Memory,
        folder: Path,
        started: float,
        facts: dict[str, Any],
    ) -> None:
        self._config = config
        self._folder = folder
        self._memory = memory
        self._started = started
        self._facts = facts
        self._stop_wanted = False
        self._reported_at = 0.0
        self._recorder = Recorder(folder, config.sample_interval_s, memory.allocator_row)
        costs = CostModel(
            shape=config.model,
            gpu=config.gpu,
            weight_dtype=config.weight_dtype,
            kv_dtype=config.kv_dtype,
            tensor_parallel=config.tensor_parallel,
            constants=config.costs,
            kv_block_tokens=backend.block_tokens,
        )
        self._executor = ModelledExecutor(costs, memory.activations, memory.driver_calls)
        self._engine = Engine(
            backend,
            self._executor,
            limits,
            MemoryAccount(memory.token_bytes, memory.plan.kv_budget_bytes),
            IncidentLog(memory.allocator_counters),
            config.max_model_len,
            self._recorder.on_end,
        )
        self._recorder.listen(self._engine)

    def go(self, requests: Iterator[Request]) -> None:
        """Drives the run to its end and writes the summary."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        try:
            self._simulated_s = drive(
                self._engine, requests, self._config.stop_after_s, self._on_tick
            )
        except RuntimeError as error:  # the engine died as a real one would: keep what there is
            self._facts |= {"status": "failed", "cause": str(error)}
            self._simulated_s = self._now
            self._engine.stop(self._now)
        if self._stop_wanted:
            self._facts |= {"status": "incomplete", "cause": "stopped by the user"}
        self._recorder.close()
        write_json(self._folder / "summary.json", self._summary())

    def _on_signal(self, number: int, frame: object) -> None:
        self._stop_wanted = True

    _now = 0.0

    def _on_tick(self, now: float) -> None:
        self._now = now
        if self._stop_wanted:
            raise Stopped
        if self._engine.steps % 128 == 0 and time.monotonic() - self._reported_at > PROGRESS_S:
            self._reported_at = time.monotonic()
            report_progress(
                {
                    "simulated_s": now,
                    "ended": self._recorder.statuses.total(),
                    "running": len(self._engine.running),
                    "waiting": self._engine.waiting_count,
                }
            )

    def _summary(self) -> dict[str, Any]:
        figures = summary.figures(
            self._folder, self._engine, self._recorder, self._simulated_s
        )
        return {
            **self._facts,
            **figures,
            "allocator": self._memory.allocator_summary(),
            "driver_s": self._executor.driver_s,
            "steps": self._engine.steps,
            "activation_replays": self._memory.activations and self._memory.activations.replays,
            "wall_s": time.monotonic() - self._started,
        }


def alloc_conf(config: Config, backend_conf: str) -> str:
    """The caching allocator's settings: the strategy's, then the user's."""
    return ",".join(part for part in (backend_conf, config.alloc_conf) if part)


def _instantiate(section: dict[str, Any], group: str) -> Any:
    """The object that a plug-in section names. Raises SettingError, or the plug-in's own error
    with the place of a nested setting in front."""
    try:
        return instantiate(section, _convert_="all")
    except InstantiationException as error:
        cause = error.__cause__
        if not isinstance(cause, TypeError | ValueError):
            raise SettingError(f"{group}: {' '.join(str(error).split())}") from error
        place = ".".join(filter(None, (group, _full_key(error))))
        if isinstance(cause, TypeError):  # an unknown or a missing keyword
            raise SettingError(f"{place}: {cause}; see conf/{group}/ for its settings.") from cause
        message = str(cause)
        raise type(cause)(message if f"{group}." in message else f"{place}: {message}") from error


def _full_key(error: InstantiationException) -> str:
    """The place below the section, which Hydra gives in its last line."""
    *_, last = str(error).splitlines()
    return last.removeprefix("full_key: ") if last.startswith("full_key: ") else ""


def _peek(requests: Iterator[Request]) -> tuple[Request | None, Iterator[Request]]:
    first = next(requests, None)

    def again() -> Iterator[Request]:
        if first is not None:
            yield first
        yield from requests

    return first, again()


def _write_setting_files(folder: Path, payload: dict[str, Any], plan: MemoryPlan) -> None:
    text = yaml.safe_dump(payload["config"], sort_keys=False, allow_unicode=True)
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    write_json(folder / "environment.json", environment() | {"memory": asdict(plan)})


def environment() -> dict[str, Any]:
    """Versions and the machine, for whoever repeats a run."""
    return {
        "fragbench": _version("fragbench"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "packages": {
            name: _version(name) for name in ("triton", "hydra-core", "numpy", "pandas", "pyarrow")
        },
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "alloc_conf": os.environ.get("PYTORCH_ALLOC_CONF", ""),
        "command": sys.argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
