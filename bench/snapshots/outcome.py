"""What a replay came to, and how like it is to what was recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.snapshots.releases import reserved_after
from bench.snapshots.settings import name_of
from bench.snapshots.steps import Steps
from bench.snapshots.trace import Action, History

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Outcome:
    """One replay. `first_oom_step` is the first step that was refused, None without one."""

    alloc_conf: str
    peak_reserved_bytes: int
    peak_allocated_bytes: int
    num_alloc_retries: int
    num_ooms: int
    first_oom_step: int | None
    granted_recorded_ooms: int
    blocks_before_refused: int
    driver_calls: Mapping[str, int]

    @property
    def name(self) -> str:
        return name_of(self.alloc_conf)

    @property
    def failures(self) -> int:
        """Allocations that were refused, those of before the history too."""
        return self.num_ooms + self.blocks_before_refused


@dataclass(frozen=True, slots=True)
class Likeness:
    """How a replay's reserved bytes compare with the recorded ones, after each step."""

    steps: int
    differing: int
    largest_share: float
    """Of the larger of both."""


def likeness(history: History, steps: Steps, reserved: NDArray[np.int64]) -> Likeness | None:
    """None where the history does not say what was reserved."""
    if not len(history.segments) and Action.SEGMENT_ALLOC not in history.rows["action"]:
        return None
    recorded = recorded_reserved(history, steps)
    gaps = np.abs(recorded - reserved) / np.maximum(np.maximum(recorded, reserved), 1)
    return Likeness(len(steps.table), int((gaps > 0).sum()), float(gaps.max()))


def recorded_reserved(history: History, steps: Steps) -> NDArray[np.int64]:
    """Bytes that were reserved before the first step and after each."""
    start = int(history.segments["size"].sum())
    after = np.concatenate([[start], reserved_after(history)])
    rows = np.searchsorted(steps.step_of_row, np.arange(len(steps.table)), side="right")
    return np.asarray(after[np.concatenate([[0], rows]).astype(np.int64)], np.int64)
