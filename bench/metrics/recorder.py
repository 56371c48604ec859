"""Listens to the engine and writes what a run leaves: requests, timeline, incidents."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.engine.engine import Engine, Step
from bench.engine.sequence import Sequence
from bench.metrics.completions import Completions
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
from bench.metrics.tally import Tally
from bench.metrics.thinned import ThinnedWriter

AllocatorRow = Callable[[], dict[str, Any]]
PART_ROWS = 5000


class Recorder:
    """Writes one row a request when it ends and one row a sample of memory.

    A sample is taken after the first step that ends past each multiple of `sample_interval_s`,
    before that step's finished sequences give back their memory.
    """

    def __init__(
        self,
        folder: Path,
        sample_interval_s: float,
        allocator_row: AllocatorRow,
        timeline_rows: int | None = None,
    ) -> None:
        """With `timeline_rows` the timeline is thinned to so many, and files are few."""
        self.statuses: Counter[Status] = Counter()
        self.batch_max = 0
        self.sequence_s = 0.0
        self.busy_s = 0.0
        self.step_tokens = Tally()
        self.worker_restarts = 0
        self._step: Step | None = None
        self._completions = Completions()
        self._folder = folder
        self._interval_s = sample_interval_s
        self._next_sample_s = 0.0
        self._allocator_row = allocator_row
        self._unsplit_s: deque[float] = deque()
        """Times of samples that are not in unfilled/ yet."""
        self._part_rows = 1 if timeline_rows is None else PART_ROWS
        schema = pa.schema([*REQUESTS, *REPLAYED])
        self._requests = PartWriter(folder / "requests", schema, self._part_rows)
        self._timeline, self._unfilled = _timelines(folder, timeline_rows)
        self.checkpoint: Callable[[], None] = lambda: None
        """What is to be written before anything else at each flush."""
        self._incidents = LineWriter(folder / "incidents.jsonl")
        self._parts: list[PartWriter | ThinnedWriter] = [
            self._requests,
            self._timeline,
            self._unfilled,
        ]
        self._sources: PartWriter | None = None

    def listen(self, engine: Engine) -> None:
        """Starts recording an engine."""
        self._engine = engine
        engine.on_step = self.on_step
        if engine.sources.are_on:
            self._sources = PartWriter(self._folder / "sources", SOURCES, self._part_rows)
            self._parts.append(self._sources)

    def on_end(self, sequence: Sequence, status: Status, cause: str | None, end_s: float) -> None:
        """A request ended."""
        self.statuses[status] += 1
        if status is Status.COMPLETED:
            self._completions.add(sequence, end_s)
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
        self._step = step
        self.step_tokens.add(step.tokens)
        duration_s = step.end_s - step.start_s
        self.busy_s += duration_s
        running = len(self._engine.running)
        self.sequence_s += running * duration_s
        self.batch_max = max(self.batch_max, running)
        if step.end_s >= self._next_sample_s:
            self._next_sample_s = (step.end_s // self._interval_s + 1) * self._interval_s
            self._sample(step)

    def _sample(self, step: Step) -> None:
        self._unsplit_s.append(step.end_s)
        self._engine.account.sample()
        row = self.row(step.end_s) | {"memory_bound": step.memory_bound}
        self._timeline.add(row | self._completions.take() | self._allocator_row())
        if self._sources is not None:
            for each in self._engine.sources.rows(step.end_s):
                self._sources.add(each)

    def row(self, time_s: float) -> dict[str, Any]:
        """The engine's part of a timeline row."""
        engine, account = self._engine, self._engine.account
        token_bytes = account.token_bytes
        usage = engine.memory.usage()
        unfilled = sum(sequence.slots - sequence.tokens for sequence in engine.running)
        step, blocks = self._step, engine.memory.blocks()
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
            "live_tokens": engine.token_states,
            "blocks_used": blocks and blocks.used,
            "blocks_free": blocks and blocks.free,
            "blocks_cached": blocks and blocks.cached,
            "step_sequences": step and step.sequences,
            "step_tokens": step and step.tokens,
            "token_budget": engine.token_budget,
            "allocation_failures": engine.incidents.refusals,
            "worker_restarts": self.worker_restarts,
        }

    @property
    def is_full(self) -> bool:
        """Whether so much came together that it is to be written before its time."""
        return self._part_rows > 1 and self._requests.kept >= self._part_rows

    def flush(self) -> None:
        """Writes what came together since the last call; call it every few seconds of wall time,
        which is what a killed run then loses."""
        self.checkpoint()
        self._incidents.add(self._engine.incidents.drain())
        self._write_splits()
        for writer in self._parts:
            writer.flush()

    def _write_splits(self) -> None:
        """Writes samples that no open hold can change any more."""
        account = self._engine.account
        for split in account.take_settled():
            self._unfilled.add(
                {
                    "time_s": self._unsplit_s.popleft(),
                    "reservation_bytes": round(split.reservation) * account.token_bytes,
                    "internal_bytes": round(split.internal) * account.token_bytes,
                    "undetermined_bytes": round(split.undetermined) * account.token_bytes,
                }
            )

    def close(self) -> None:
        """Writes the rest, after the engine stopped."""
        self.flush()
        for writer in self._parts:
            writer.close()
        self._incidents.close()


def _timelines(
    folder: Path, rows: int | None
) -> tuple[PartWriter | ThinnedWriter, PartWriter | ThinnedWriter]:
    """What writes timeline/ and unfilled/, all of them or at most `rows`."""
    if rows is None:
        return PartWriter(folder / "timeline", TIMELINE), PartWriter(folder / "unfilled", UNFILLED)
    timeline = ThinnedWriter(folder / "timeline", TIMELINE, rows, extremes=True)
    return timeline, ThinnedWriter(folder / "unfilled", UNFILLED, rows, follows=timeline)
