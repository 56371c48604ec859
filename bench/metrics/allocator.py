"""The caching allocator's part of a timeline row and of a summary."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch

from bench.device.failures import FailureWatch
from bench.device.stats import (
    AllocatorReader,
    AllocatorStats,
    DriverCalls,
    external_fragmentation,
)

SNAPSHOT_EVENTS = 100_000


class AllocatorProbe:
    """Reads the allocator and the driver's counters of this process."""

    def __init__(self) -> None:
        self._reader = AllocatorReader()
        self._failures = FailureWatch(self._reader)
        self._calls = DriverCalls()
        self._calls_before = self._calls.read()
        self._before = self._reader.read()

    def driver_calls(self) -> dict[str, int]:
        """Driver calls by kind since the process began."""
        return self._calls.read()

    def start(self) -> None:
        """From here on counts belong to the run: what set it up is left out."""
        self._calls_before = self._calls.read()
        self._before = self._reader.read()

    def record_history(self) -> None:
        """Keeps the last events of the allocator, for `dump`."""
        torch.cuda.memory._record_memory_history(context=None, max_entries=SNAPSHOT_EVENTS)

    def dump(self, path: Path) -> None:
        """Writes a snapshot that PyTorch's viewer reads: pickle protocol 4, as it fails on 5."""
        with path.open("wb") as file:
            pickle.dump(torch.cuda.memory._snapshot(), file, protocol=4)

    def row(self) -> dict[str, Any]:
        """Columns of bench.metrics.records.TIMELINE; null where the allocator keeps no count.

        It walks every block of the allocator (milliseconds): once a sample, not more.
        """
        self._failures.walks = True
        stats = self._reader.read()
        return self.counters(stats) | _free_blocks(stats, self._reader.largest_free_bytes())

    def now(self) -> dict[str, Any]:
        """The state for an incident that the allocator was not asked in. Blocks are walked in the
        first one after each timeline row: else what comes of that is null."""
        stats = self._reader.read()
        walks, self._failures.walks = self._failures.walks, False
        largest_free = self._reader.largest_free_bytes() if walks else None
        return {"tried_bytes": None} | self._state(stats, largest_free)

    def at_failure(self) -> dict[str, Any]:
        """The state when the allocator last refused memory, which it must have done."""
        failed = self._failures.last
        assert failed is not None, "the allocator refused nothing"
        state = self._state(failed.stats, failed.largest_free_bytes)
        return {"tried_bytes": failed.tried_bytes} | state

    def _state(self, stats: AllocatorStats, largest_free: int | None) -> dict[str, Any]:
        driver_free = {"driver_free_bytes": stats.driver_free_bytes}
        return driver_free | self.counters(stats) | _free_blocks(stats, largest_free)

    def counters(self, stats: AllocatorStats | None = None) -> dict[str, Any]:
        """The columns that cost microseconds."""
        stats = stats or self._reader.read()
        return {
            "allocated_bytes": stats.allocated_bytes,
            "requested_bytes": stats.requested_bytes,
            "reserved_bytes": stats.reserved_bytes,
            "active_bytes": stats.active_bytes,
            "inactive_split_bytes": stats.inactive_split_bytes,
            "segments": stats.segments,
            "num_alloc_retries": stats.num_alloc_retries - self._before.num_alloc_retries,
            "num_ooms": stats.num_ooms - self._before.num_ooms,
            "driver_calls": sum(self.made().values()),
        }

    def memory_map(self, parts: int) -> list[int]:
        """How full each of `parts` equal parts of reserved memory is, in per cent."""
        return self._reader.memory_map(parts)

    def made(self) -> dict[str, int]:
        """Driver calls of the run, by kind, without those that were never made."""
        calls, before = self._calls.read(), self._calls_before
        return {kind: n - before[kind] for kind, n in calls.items() if n != before[kind]}

    def summary(self) -> dict[str, Any]:
        """summary.json's `allocator`: peaks and counts of the run."""
        stats = self._reader.read()
        return {
            "peak_allocated_bytes": stats.peak_allocated_bytes,
            "peak_reserved_bytes": stats.peak_reserved_bytes,
            "num_alloc_retries": stats.num_alloc_retries - self._before.num_alloc_retries,
            "num_ooms": stats.num_ooms - self._before.num_ooms,
            "driver_calls": self.made(),
        }


def _free_blocks(stats: AllocatorStats, largest_free: int | None) -> dict[str, Any]:
    fragmentation = None
    if largest_free is not None:
        fragmentation = external_fragmentation(largest_free, stats.total_free_bytes)
    return {"largest_free_bytes": largest_free, "external_fragmentation": fragmentation}
