"""One run, in a process of its own: from a configuration to the files of a run.

Everything that a user can get wrong is found before the first file is written.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import torch
import yaml
from hydra.errors import InstantiationException
from hydra.utils import instantiate

from backends.base import Backend, TokenIds
from bench.config import Config, from_container
from bench.costs import CostModel
from bench.device.job import report_progress
from bench.engine.device_memory import DeviceMemory
from bench.engine.driver import Stopped, drive
from bench.engine.engine import ActivationsDoNotFitError, Engine
from bench.engine.executor import Executor, ModelledExecutor
from bench.engine.incidents import IncidentLog
from bench.engine.limits import resolve_limits, resolve_padding
from bench.engine.memory_plan import MemoryPlan
from bench.engine.model_executor import ModelExecutor
from bench.engine.scheduler import Limits
from bench.environment import environment
from bench.errors import SettingError
from bench.labels import labels
from bench.metrics import summary
from bench.metrics.accounting import MemoryAccount
from bench.metrics.recorder import Recorder
from bench.metrics.records import write_json
from bench.model.sampling import Sampler
from bench.token_source import TextSource, token_source
from workloads.base import Request, Workload, WorkloadError

PROGRESS_S = 0.25
FLUSH_S = 4.0  # a killed run loses no more than this and a bit
MOST_COUNTED = 200_000  # about a second
STEPS_A_LOOK = 128  # the clock is looked at once in so many steps


def run(payload: dict[str, Any]) -> None:
    """Runs `payload["config"]` on `payload["device"]` and leaves its files in `payload["out"]`.

    Raises SettingError, BackendError or WorkloadError before anything is written.
    """
    started = time.monotonic()
    config = from_container(payload["config"])
    workload: Workload = _instantiate(payload["config"]["workload"], "workload")
    backend: Backend = _instantiate(payload["config"]["backend"], "backend")
    limits = resolve_limits(config, backend)
    expected = _count(workload.requests(config.seed), config.stop_after_s)
    if not expected:
        raise WorkloadError(f"workload={workload.name} has no requests: widen its limits.")
    if payload["device"] != "cpu":
        _start_allocator()
    memory = DeviceMemory(config, backend, limits, payload["device"])
    folder = Path(payload["out"])
    _make(folder)
    _write_setting_files(folder, payload, memory.plan)
    facts = {
        "status": "completed",
        "cause": None,
        **labels(payload["config"], payload["device"]),
        "workload": workload.name,
        **memory.facts(config),
    }
    listener = _Run(config, backend, limits, memory, folder, started, facts)
    listener.expected = expected if expected < MOST_COUNTED else None
    listener.go(workload.requests(config.seed))


class _Run:
    """The engine with everything that listens to it, for one run."""

    expected: int | None = None
    """Requests that will be sent, None if not known: for whoever watches."""

    def __init__(
        self,
        config: Config,
        backend: Backend,
        limits: Limits,
        memory: DeviceMemory,
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
        self._reported_at = self._flushed_at = time.monotonic()
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
        vocab_size = config.model.vocab_size
        padding = resolve_padding(config, backend, limits)
        self._executor: Executor
        source: Callable[[Request], TokenIds] | None = None
        if memory.decoder is not None:
            sampler = Sampler(config.engine.temperature, config.seed)
            self._executor = ModelExecutor(
                memory.decoder, backend, sampler, costs, memory.device, padding
            )
            source = TextSource(vocab_size)
        else:
            self._executor = ModelledExecutor(
                costs, memory.activations, memory.driver_calls, padding
            )
            if backend.caches_prefixes:
                source = partial(token_source, vocab_size=vocab_size)
        self._engine = Engine(
            backend,
            self._executor,
            limits,
            MemoryAccount(memory.token_bytes, memory.plan.kv_budget_bytes),
            IncidentLog(memory.allocator_counters),
            config.max_model_len,
            self._recorder.on_end,
            source,
        )
        self._recorder.listen(self._engine)

    def go(self, requests: Iterator[Request]) -> None:
        """Drives the run to its end and writes the summary."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        if self._config.memory_snapshot:
            self._memory.record_history()
        try:
            self._simulated_s = drive(
                self._engine, requests, self._config.stop_after_s, self._on_tick
            )
        except ActivationsDoNotFitError as error:  # a real engine would have died here
            self._facts |= {"status": "failed", "cause": str(error)}
            self._simulated_s = self._now
            self._engine.stop(self._now)
        if self._stop_wanted:
            self._facts |= {"status": "incomplete", "cause": "stopped by the user"}
        if self._config.memory_snapshot:
            self._memory.dump_snapshot(self._folder / "memory_snapshot.pickle")
        self._recorder.close()
        write_json(self._folder / "summary.json", self._summary())

    def _on_signal(self, number: int, frame: object) -> None:
        self._stop_wanted = True

    _now = 0.0

    def _on_tick(self, now: float) -> None:
        self._now = now
        if self._stop_wanted:
            raise Stopped
        if self._engine.steps % STEPS_A_LOOK:
            return
        wall_s = time.monotonic()
        if wall_s - self._flushed_at > FLUSH_S:
            self._flushed_at = wall_s
            self._recorder.flush()
        if wall_s - self._reported_at > PROGRESS_S:
            self._reported_at = wall_s
            report_progress(
                {
                    "simulated_s": now,
                    "ended": self._recorder.statuses.total(),
                    "expected": self.expected,
                    "running": len(self._engine.running),
                    "waiting": self._engine.waiting_count,
                }
            )

    def _summary(self) -> dict[str, Any]:
        figures = summary.figures(self._folder, self._engine, self._recorder, self._simulated_s)
        return {
            **self._facts,
            **figures,
            "allocator": self._memory.allocator_summary(),
            "driver_s": self._executor.driver_s,
            "steps": self._engine.steps,
            "step_s": {
                "measured": self._recorder.busy_s if self._memory.decoder else None,
                "modelled": self._executor.modelled_s,
            },
            "activation_replays": self._memory.activations and self._memory.activations.replays,
            "wall_s": time.monotonic() - self._started,
        }


def _instantiate(section: dict[str, Any], group: str) -> Any:
    """The object that a plug-in section names. Raises SettingError, or the plug-in's own error
    with the place of a nested setting in front."""
    if "_target_" not in section:
        raise SettingError(
            f"{group} has no _target_, the class to make: choose an option of conf/{group}/."
        )
    try:
        return instantiate(section, _convert_="all")
    except InstantiationException as error:
        cause = error.__cause__
        if not isinstance(cause, TypeError | ValueError):
            raise SettingError(f"{group}: {' '.join(str(error).split())}") from error
        place = ".".join(filter(None, (group, _full_key(error))))
        if isinstance(cause, TypeError):
            raise SettingError(f"{_wrong_keyword(place, cause)} (conf/{group}/).") from cause
        message = str(cause)
        raise type(cause)(message if f"{group}." in message else f"{place}: {message}") from error


def _wrong_keyword(place: str, error: TypeError) -> str:
    unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if unknown:
        return f"{place}.{unknown[1]} is no setting: remove it, or spell it as the group's files do"
    return f"{place}: {error}: give it, as the group's files do"


def _full_key(error: InstantiationException) -> str:
    """The place below the section, which Hydra gives in its last line."""
    *_, last = str(error).splitlines()
    return last.removeprefix("full_key: ") if last.startswith("full_key: ") else ""


def _count(requests: Iterator[Request], stop_after_s: float | None) -> int:
    """How many requests will be sent, MOST_COUNTED for that many or more. Later turns count, though
    those of sessions that are cut off by the end are not known before."""
    end_s = float("inf") if stop_after_s is None else stop_after_s
    sent = takewhile(lambda request: request.scheduled_s < end_s, requests)
    turns = (turn for request in sent for turn in _turns(request))
    return sum(1 for _ in islice(turns, MOST_COUNTED))


def _turns(request: Request | None) -> Iterator[Request]:
    while request is not None:
        yield request
        request = request.next_turn


def _start_allocator() -> None:
    """Starts CUDA, which reads the allocator's settings. Raises SettingError if it cannot."""
    try:
        cuda: Any = torch.cuda
        cuda.init()
    except (RuntimeError, ValueError) as error:
        settings = os.environ.get("PYTORCH_ALLOC_CONF", "")
        why = str(error).splitlines()[0].rstrip(".")
        raise SettingError(
            f"alloc_conf={settings} cannot be used: PyTorch says: {why}; write "
            "option:value[,option:value], such as expandable_segments:True."
        ) from error


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(
            f"out={folder} cannot be made: {error.strerror}; choose another folder."
        ) from error


def _write_setting_files(folder: Path, payload: dict[str, Any], plan: MemoryPlan) -> None:
    text = yaml.safe_dump(payload["config"], sort_keys=False, allow_unicode=True)
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    write_json(
        folder / "environment.json", environment(payload["command"]) | {"memory": asdict(plan)}
    )
