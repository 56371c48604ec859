"""One replay, in a process of its own: the settings of its environment hold for it alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.device.allocator_start import start_allocator
from bench.device.stats import DriverCalls
from bench.snapshots.before import history_before
from bench.snapshots.replayer import Replayer
from bench.snapshots.start import place_start
from bench.snapshots.steps import Op
from bench.snapshots.stored import Figures, Replayed, load, save_replay
from bench.snapshots.trace import Action, History, Table, new_names, read_rows

STEPS_AT_ONCE = 20_000
"""The allocator's own records are large: they are fetched so often."""

# Which of PyTorch's functions have annotations varies from version to version.
_bindings: Any = torch._C
_memory: Any = torch.cuda.memory


def replay(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Replays the steps in the file `history`, and leaves in `out` what the allocator did. What was
    there before takes the bytes it had if `exactly`; `memory_fraction` is what the program gave to
    torch.cuda.set_per_process_memory_fraction (None: nothing). Raises SettingError."""
    history, steps = load(Path(payload["history"]))
    start_allocator()
    if payload["memory_fraction"] is not None:
        _memory.set_per_process_memory_fraction(payload["memory_fraction"])
    replayer = Replayer()
    place_start(history, replayer, exactly=payload["exactly"])
    refused_before, begun = replayer.refused, replayer.counts()
    calls = DriverCalls()
    calls_before = calls.read()
    running = _Running(replayer)
    running.run(steps.table)
    made = {kind: n - calls_before[kind] for kind, n in calls.read().items()}
    replayed = Replayed(running.history(history), running.times(), running.figures())
    save_replay(Path(payload["out"]), replayed)
    return {
        "peak_reserved_bytes": int(replayed.figures.reserved.max()),
        "peak_allocated_bytes": int(replayed.figures.allocated.max()),
        **{name: n - begun[name] for name, n in replayer.counts().items()},
        "first_oom_step": running.first_refused,
        "granted_recorded_ooms": running.granted,
        "blocks_before_refused": refused_before,
        "driver_calls": {kind: n for kind, n in made.items() if n},
    }


class _Running:
    """The steps, one after the other, and what is noted after each."""

    def __init__(self, replayer: Replayer) -> None:
        self._replayer = replayer
        self._names = new_names()
        self._figures = [(replayer.allocated_bytes, replayer.reserved_bytes)]
        self._ends_before = replayer.ends
        self._ends: list[int] = []
        self._rows: list[Table] = []
        self._numbers: list[int] = []  # of allocations that were granted, in order
        self._before = replayer.numbers()
        self._segments: list[dict[str, Any]] = []
        self.first_refused: int | None = None
        self.granted = 0

    def run(self, table: Table) -> None:
        _record()
        for first in range(0, len(table), STEPS_AT_ONCE):
            for step, row in enumerate(table[first : first + STEPS_AT_ONCE].tolist(), first):
                if not self._do(*row) and self.first_refused is None:
                    self.first_refused = step
                self._figures.append(
                    (self._replayer.allocated_bytes, self._replayer.reserved_bytes)
                )
                self._ends.append(self._replayer.ends - self._ends_before)
            self._fetch()
        if not len(table):
            self._fetch()

    def history(self, recorded: History) -> History:
        """What the allocator did, with the labels of what was recorded."""
        rows = np.concatenate(self._rows)
        found = history_before(rows, self._segments, self._names)
        labels = _labels(recorded)
        rows["label"][rows["action"] == Action.ALLOC] = labels[np.array(self._numbers, np.int64)]
        for block in found.blocks:
            block["label"] = labels[self._before.get(int(block["address"]), -1)]
        return History(rows, found.blocks, found.segments, recorded.labels)

    def times(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The step of each row: each ends with an event that the replayer counts."""
        actions = np.concatenate(self._rows)["action"]
        ends = np.isin(actions, (Action.ALLOC, Action.FREE_COMPLETED, Action.OOM))
        before = ends.cumsum() - ends
        steps = np.searchsorted(np.array(self._ends), before, side="right")
        return np.minimum(steps, max(len(self._ends) - 1, 0)).astype(np.float64)

    def figures(self) -> Figures:
        allocated, reserved = np.array(self._figures, np.int64).T
        return Figures(allocated, reserved)

    def _do(self, op: int, number: int, size: int, stream: int, pool: int) -> bool:
        """Whether memory was granted, if any was asked for."""
        replayer = self._replayer
        if op == Op.ALLOC:
            granted = bool(replayer.alloc(number, size, stream, pool))
            if granted:
                self._numbers.append(number)
            return granted
        if op == Op.REFUSED:
            granted = replayer.attempt(size, stream, pool)
            if granted:
                self._numbers.append(-1)
                self.granted += 1
            return granted
        if op == Op.FREE:
            replayer.free(number)
        elif op == Op.REQUEST_FREE:
            replayer.request_free(number)
        elif op == Op.COMPLETE_FREE:
            replayer.complete_free(number)
        elif op == Op.EMPTY_CACHE:
            replayer.empty_cache()
        elif op == Op.DROP_POOL:
            replayer.drop_pool(pool)
        return True

    def _fetch(self) -> None:
        """What the allocator recorded since the last time."""
        snapshot = _bindings._cuda_memorySnapshot(None)
        self._rows.append(read_rows(snapshot["device_traces"][0], self._names))
        self._segments = snapshot["segments"]
        _record()


def _record() -> None:
    """Has the allocator record what it does, from here on."""
    _memory._record_memory_history(context=None, max_entries=2**31 - 1, clear_history=True)


def _labels(recorded: History) -> np.ndarray[Any, np.dtype[np.int64]]:
    """By an allocation's number; the last one, none, for what has no number."""
    allocated = recorded.rows["label"][recorded.rows["action"] == Action.ALLOC]
    return np.concatenate([recorded.blocks["label"], allocated, [0]]).astype(np.int64)
