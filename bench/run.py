"""One run, in a process of its own: from a configuration to the files of a run.

Everything that a user can get wrong is found before the first file is written.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from bench.config import Config, from_container
from bench.device.job import report_progress
from bench.engine import wall_clock
from bench.engine.allocator_views import AllocatorViews
from bench.engine.driver import Stopped, drive
from bench.engine.engine import ActivationsDoNotFitError, Engine
from bench.engine.executor import Answer
from bench.engine.incidents import IncidentLog
from bench.engine.users import Users
from bench.environment import environment
from bench.labels import labels
from bench.metrics import summary
from bench.metrics.accounting import MemoryAccount
from bench.metrics.checkpoint import write_checkpoint
from bench.metrics.inter_token import BinnedGaps, write_gaps
from bench.metrics.recorder import Recorder
from bench.metrics.records import write_json
from bench.metrics.status import Status
from bench.parts import make_parts
from bench.plugins import make
from bench.setting_files import make_folder, write_config, write_environment
from bench.turns import check_one_branch, count_turns, loop_name
from workloads.base import Workload

PROGRESS_S = 0.25
MAP_PARTS = 1024
KV_TERMS = ("token_states_bytes", "unfilled_bytes", "rounding_bytes", "cached_bytes", "free_bytes")


def run(payload: dict[str, Any]) -> None:
    """Runs `payload["config"]` on `payload["device"]` and leaves its files in `payload["out"]`.

    Raises SettingError, BackendError or WorkloadError before anything is written.
    """
    started = time.monotonic()
    config = from_container(payload["config"])
    workload: Workload = make(payload["config"]["workload"], "workload")
    expected = count_turns(workload, config.seed, config.stop_after_s)
    if config.engine.name == "vllm":
        check_one_branch(workload, config.seed, config.stop_after_s)
    facts = {
        "workload": workload.name,
        "loop": loop_name(workload),
        "traces": workload.trace_facts(),
    }
    listener = Run(config, payload, started, facts)
    listener.expected = expected
    requests = workload.requests(config.seed)
    buffer_tokens = config.serve.stream_buffer_tokens
    users = Users(listener.engine, requests, workload.closed_loop, buffer_tokens)
    if payload.get("drains"):
        listener.drain = users.leave
    if config.driver.clock == "virtual":
        listener.go(partial(drive, users=users, stop_after_s=config.stop_after_s))
    else:
        clock = wall_clock.Clock(config.time_scale)
        schedule = wall_clock.Schedule(users, config.stop_after_s, clock)
        listener.go(partial(wall_clock.drive, traffic=schedule, clock=clock))


class Run:
    """The engine with everything that listens to it, for one run."""

    expected: int | None = None
    """Requests that will be sent, None if not known: for whoever watches."""

    drain: Callable[[float], None] | None = None
    """What the first signal to stop does, where it does not end the run at once: sees to it that
    nothing more comes."""

    def __init__(
        self,
        config: Config,
        payload: dict[str, Any],
        started: float,
        facts: dict[str, Any],
        *,
        answer: Answer | None = None,
    ) -> None:
        """Sets up memory and engine, and writes the first files. `facts` is more for summary.json;
        `answer` gives the ids that a model that is not run says, if somebody wants to know.

        Raises SettingError or BackendError before anything is written.
        """
        parts = make_parts(config, payload["config"], payload["device"], answer)
        self._memory = memory = parts.memory
        self._config = config
        self._folder = Path(payload["out"])
        make_folder(self._folder)
        write_config(self._folder, payload["config"])
        machine = environment(payload["command"])
        write_environment(self._folder, machine | {"memory": asdict(memory.plan)})
        self.facts = {
            "status": "completed",
            "cause": None,
            **labels(payload["config"], payload["device"]),
            **facts,
            **memory.facts(config),
        }
        self._started = started
        self._stops_wanted = 0
        self._reported_at = self._flushed_at = time.monotonic()
        self._recorder = Recorder(
            self._folder, config.sample_interval_s, memory.allocator_row, config.timeline_rows
        )
        self._recorder.worker_restarts = payload.get("restarts", 0)
        self._executor = parts.executor
        self.engine = Engine(
            parts.backend,
            parts.executor,
            parts.limits,
            MemoryAccount(memory.token_bytes, memory.plan.kv_budget_bytes),
            IncidentLog(memory.allocator_now, memory.allocator_at_failure),
            config.max_model_len,
            self._recorder.on_end,
            parts.tokens,
            parts.sources,
            config.engine.empty_cache,
            parts.make_scheduler,
        )
        self._recorder.listen(self.engine)
        self._binned = BinnedGaps() if config.timeline_rows is not None else None
        if self._binned is not None:
            self.engine.gaps = self._binned
            self._recorder.checkpoint = self._write_checkpoint

    @property
    def memory(self) -> AllocatorViews:
        """The device's memory, of which the engine has its KV."""
        return self._memory

    def go(self, drive: Callable[..., float]) -> None:
        """Has `drive` run the engine to its end, as a driver of bench/engine does, and writes the
        summary."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        if self._config.memory_snapshot:
            self._memory.record_history()
        try:
            self._simulated_s = drive(self.engine, on_tick=self._on_tick)
        except ActivationsDoNotFitError as error:  # a real engine would have died here
            self.facts |= {"status": "failed", "cause": str(error)}
            self._simulated_s = self._sent_until_s = self._now
            self.engine.stop(self._now)
        self._now = self._simulated_s
        if self._stops_wanted:
            self.facts |= {"status": "incomplete", "cause": "stopped by the user"}
        if self._config.memory_snapshot:
            self._memory.dump_snapshot(self._folder / "memory_snapshot.pickle")
        self._recorder.close()
        write_gaps(self._folder, *self.engine.gaps.weighted())
        write_json(self._folder / "summary.json", self._summary())

    def _on_signal(self, number: int, frame: object) -> None:
        self._stops_wanted += 1

    _now = 0.0
    _sent_until_s = 0.0
    _ticked_at = math.inf

    def _on_tick(self, now: float) -> None:
        # What fell due since the last tick is sent after this one, or turned away.
        self._sent_until_s, self._now = now if self._stops_wanted else self._now, now
        if self._stops_wanted:
            self._stop(now)
        wall_s = time.monotonic()
        step_s, self._ticked_at = max(wall_s - self._ticked_at, 0.0), wall_s
        # Another step like the last one would come too late.
        due_s = self._flushed_at + self._config.flush_s - min(step_s, self._config.flush_s)
        if wall_s > due_s or self._recorder.is_full:
            self._flushed_at = wall_s
            self._recorder.flush()
        if wall_s - self._reported_at > PROGRESS_S:
            self._reported_at = wall_s
            report_progress(self._progress())

    def _stop(self, now: float) -> None:
        """Raises Stopped, unless all that is wanted is an end to what comes."""
        if self.drain is None or self._stops_wanted > 1:
            raise Stopped
        self.drain(now)
        self.drain = _nothing_more

    def _progress(self) -> dict[str, Any]:
        engine, probe = self.engine, self._memory.probe
        allocator = probe.counters() if probe else {}
        return {
            "simulated_s": self._now,
            "ended": self._recorder.statuses.total(),
            "expected": self.expected,
            "running": len(engine.running),
            "waiting": engine.waiting_count,
            "completed": self._recorder.statuses[Status.COMPLETED],
            "output_tokens": engine.output_tokens,
            "kv_held_share": engine.memory.usage().held / engine.account.budget_bytes,
            "reserved_bytes": allocator.get("reserved_bytes"),
            "allocated_bytes": allocator.get("allocated_bytes"),
            "incidents": engine.incidents.count,
        } | self._for_the_live_page()

    def _for_the_live_page(self) -> dict[str, Any]:
        """What a live page draws besides: a map of the allocator's memory, and the KV budget."""
        if not self._config.dashboard:
            return {}
        row, probe = self._recorder.row(self._now), self._memory.probe
        return {
            "kv_bytes": {key: row[key] for key in KV_TERMS},
            "memory_map": probe.memory_map(MAP_PARTS) if probe else [],
        }

    def _write_checkpoint(self) -> None:
        assert self._binned is not None
        self._binned.forget(self.engine.oldest_step)
        figures = summary.engine_figures(self.engine, self._recorder, self._now)
        write_checkpoint(
            self._folder, self._binned, self.engine, self._recorder, self._now,
            self._sent_until_s, self.facts, {**figures, **self._own_figures()},
        )  # fmt: skip

    def gauges(self) -> dict[str, Any]:
        """The state of queue, memory and allocator now, and counts so far, by name: a timeline
        row's (docs/metrics.md) and those of prefix hits, incidents and steps. Sizes of refused
        requests and of steps are counted by powers of two (bench/metrics/tally.py)."""
        memory, account = self.engine.memory, self.engine.account
        counts = {
            "kv_capacity_tokens": account.budget_bytes // account.token_bytes,
            "allocation_failures_by_size": [
                {"kind": kind, "layer": layer, **tally.as_dict()}
                for (kind, layer), tally in self.engine.incidents.failures.items()
            ],
            "tokens_of_steps": self._recorder.step_tokens.as_dict(),
            "held_bytes": memory.usage().held,
            "prefix_queries": memory.prefix_cache.query_tokens,
            "prefix_hits": memory.prefix_cache.hit_tokens,
            "oom_incidents": self.engine.incidents.count,
            "steps": self.engine.steps,
        }
        return self._recorder.row(self._now) | counts | self._memory.allocator_row()

    def _summary(self) -> dict[str, Any]:
        figures = summary.figures(self._folder, self.engine, self._recorder, self._simulated_s)
        return {
            **self.facts,
            **figures,
            **self._own_figures(),
        }

    def _own_figures(self) -> dict[str, Any]:
        return {
            "allocator": self._memory.allocator_summary(),
            "sources": self.engine.sources.summary(),
            "driver_s": self._executor.driver_s,
            "steps": self.engine.steps,
            "step_s": {
                "measured": self._recorder.busy_s if self._executor.measures else None,
                "modelled": self._executor.modelled_s,
            },
            "activation_replays": self._memory.activations and self._memory.activations.replays,
            **self._memory.counted_by_engine(),
            "wall_s": time.monotonic() - self._started,
        }


def _nothing_more(now: float) -> None:
    """Of a run that drains already."""
