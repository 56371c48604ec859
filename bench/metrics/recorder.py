"""Listens to the engine and writes what a run leaves: requests, timeline, incidents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.engine.engine import Engine, Step
from bench.engine.sequence import Sequence
from bench.metrics.records import (
    REPLAYED,
    REQUESTS,
    SOURCES,
    TIMELINE,
    UNFILLED,
    LineWriter,
    PartWriter,
)
from bench.metrics.status import Status

AllocatorRow = Callable[[], dict[str, Any]]


class Recorder:
    """Writes one row a request when it ends and one row a sample of memory.

    A sample is taken after the first step that ends past each multiple of `sample_interval_s`,
    before that step's finished sequences give back their memory.
    """

    def __init__(self, folder: Path, sample_interval_s: float, allocator_row: AllocatorRow) -> None:
        self.statuses: Counter[Status] = Counter()
        self.batch_max = 0
        self.sequence_s = 0.0
        self.busy_s = 0.0
        self._folder = folder
        self._interval_s = sample_interval_s
        self._next_sample_s = 0.0
        self._allocator_row = allocator_row
        self._sample_times: list[float] = []
        self._split_written = 0
        self._requests = PartWriter(folder / "requests", pa.schema([*REQUESTS, *REPLAYED]))
        self._timeline = PartWriter(folder / "timeline", TIMELINE)
        self._unfilled = PartWriter(folder / "unfilled", UNFILLED)
        self._incidents = LineWriter(folder / "incidents.jsonl")
        self._parts = [self._requests, self._timeline, self._unfilled]
        self._sources: PartWriter | None = None

    def listen(self, engine: Engine) -> None:
        """Starts recording an engine."""
        self._engine = engine
        engine.on_step = self.on_step
        if engine.sources.are_on:
            self._sources = PartWriter(self._folder / "sources", SOURCES)
            self._parts.append(self._sources)

    def on_end(self, sequence: Sequence, status: Status, cause: str | None, end_s: float) -> None:
        """A request ended."""
        self.statuses[status] += 1
        request = sequence.request
        left = request.client.leave
        self._requests.add(
            {
                "request_id": request.request_id,
                "kind": request.kind,
                "prompt_tokens": request.prompt_tokens,
                "output_tokens": request.output_tokens,
                "generated_tokens": sequence.generated,
                "branches": request.branches,
                "scheduled_s": request.scheduled_s,
                "sent_s": sequence.sent_s,
                "admitted_s": sequence.admitted_s,
                "first_token_s": sequence.first_token_s,
                "last_token_s": sequence.last_token_s,
                "end_s": None if status is Status.UNFINISHED else end_s,
                "status": status.value,
                "cause": cause,
                "preemptions": sequence.preemptions,
                "cached_tokens": sequence.cached_tokens,
                "left": left.kind if left and status is Status.CANCELLED else None,
                "slow_reader": request.client.tokens_per_s is not None,
                "cache_salt": request.cache_salt,
                "prefix": [
                    {"source": source.value, "id": id_, "tokens": tokens}
                    for source, id_, tokens in request.prefix
                ],
                "leave": left._asdict() if left else None,
                "tokens_per_s": request.client.tokens_per_s,
            }
        )

    def on_step(self, step: Step) -> None:
        """A step ended."""
        duration_s = step.end_s - step.start_s
        self.busy_s += duration_s
        running = len(self._engine.running)
        self.sequence_s += running * duration_s
        self.batch_max = max(self.batch_max, running)
        if step.end_s >= self._next_sample_s:
            self._next_sample_s = (step.end_s // self._interval_s + 1) * self._interval_s
            self._sample(step)

    def _sample(self, step: Step) -> None:
        self._sample_times.append(step.end_s)
        self._engine.account.sample(self._engine.running)
        row = self.row(step.end_s) | {"memory_bound": step.memory_bound}
        self._timeline.add(row | self._allocator_row())
        if self._sources is not None:
            for each in self._engine.sources.rows(step.end_s):
                self._sources.add(each)

    def row(self, time_s: float) -> dict[str, Any]:
        """The engine's part of a timeline row."""
        engine, account = self._engine, self._engine.account
        token_bytes = account.token_bytes
        usage = engine.memory.usage()
        unfilled = sum(sequence.slots - sequence.tokens for sequence in engine.running)
        return {
            "time_s": time_s,
            "running": len(engine.running),
            "waiting": engine.waiting_count,
            "token_states_bytes": engine.token_states * token_bytes,
            "shared_bytes": usage.shared,
            "unfilled_bytes": unfilled * token_bytes,
            "rounding_bytes": usage.rounding,
            "cached_bytes": usage.cached,
            "free_bytes": usage.free,
            "kv_budget_bytes": account.budget_bytes,
            "preemptions": engine.preemptions,
            "completed": self.statuses[Status.COMPLETED],
            "output_tokens": engine.output_tokens,
            "steps_measured_s": self.busy_s if engine.executor.measures else None,
            "steps_modelled_s": engine.executor.modelled_s,
        }

    def flush(self) -> None:
        """Writes what came together since the last call; call it every few seconds of wall time,
        which is what a killed run then loses."""
        self._incidents.add(self._engine.incidents.drain())
        self._write_splits()
        for writer in self._parts:
            writer.flush()

    def _write_splits(self) -> None:
        """Writes samples that no open hold can change any more."""
        account = self._engine.account
        settled = account.settled()
        for number in range(self._split_written, settled):
            split = account.samples[number]
            self._unfilled.add(
                {
                    "time_s": self._sample_times[number],
                    "reservation_bytes": round(split.reservation) * account.token_bytes,
                    "internal_bytes": round(split.internal) * account.token_bytes,
                    "undetermined_bytes": round(split.undetermined) * account.token_bytes,
                }
            )
        self._split_written = settled

    def close(self) -> None:
        """Writes the rest, after the engine stopped."""
        self.flush()
        for writer in self._parts:
            writer.close()
        self._incidents.close()
