"""Reserved - allocated over a run, read from its timeline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from bench.errors import SettingError
from bench.paper.task import Point, Task
from bench.report.results import Run

GIB = 1 << 30
COLUMNS = ("time_s", "reserved_bytes", "allocated_bytes", "completed")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Gap:
    """A row a sample, in seconds, bytes and requests; all arrays of shape (n,), n > 0."""

    run: Run
    time_s: Floats
    reserved_bytes: Floats
    allocated_bytes: Floats
    completed: Floats

    @property
    def gap_bytes(self) -> Floats:
        """Reserved - allocated."""
        return self.reserved_bytes - self.allocated_bytes

    @property
    def reserved_peak_bytes(self) -> float:
        """The most that was reserved; of a run without a summary, of its samples."""
        return self._peak("peak_reserved_bytes", self.reserved_bytes)

    @property
    def beyond_bytes(self) -> float:
        """The most reserved less the most allocated: what the card must have beyond what anything
        ever needed."""
        allocated = self._peak("peak_allocated_bytes", self.allocated_bytes)
        return self.reserved_peak_bytes - allocated

    @property
    def retries(self) -> int:
        """How often a refused allocation was tried again, without what was cached."""
        return int(self.run.number("allocator", "num_alloc_retries") or 0)

    def _peak(self, key: str, samples: Floats) -> float:
        known = self.run.number("allocator", key)
        return float(samples.max()) if known is None else known

    def numbers(self) -> dict[str, float | str | None]:
        """For the JSON file."""
        gap = self.gap_bytes
        return {
            "status": self.run.status,
            "cause": self.run.cause,
            "gap_mean_bytes": float(gap.mean()),
            "gap_peak_bytes": float(gap.max()),
            "gap_end_bytes": float(gap[-1]),
            "reserved_peak_bytes": self.reserved_peak_bytes,
            "reserved_beyond_allocated_peak_bytes": self.beyond_bytes,
            "completed": float(self.completed[-1]),
            "num_alloc_retries": self.run.number("allocator", "num_alloc_retries"),
            "driver_s": self.run.number("driver_s"),
            "held_waste": self.run.number("held_waste"),
        }


def run_gaps(task: Task, points: list[Point]) -> dict[str, Gap]:
    """Makes runs and reads them, by name. Raises SettingError for one that has no allocator."""
    runs = task.run(points)
    return {point.name: read_gap(runs[point.name]) for point in points}


def read_gap(run: Run) -> Gap:
    """Of one run. Raises SettingError where there is nothing to read."""
    rows = run.timeline.read(COLUMNS, run.notes).dropna()
    if rows.empty:
        raise SettingError(
            f"the run {run.folder} has no samples of PyTorch's allocator ({run.cause or run.device}"
            "): take device=virtual or device=cuda, and traffic that it can serve."
        )
    return Gap(run, *(rows[column].to_numpy(float) for column in COLUMNS))


def draw_gap(axes: Axes, x: Floats, gap: Gap, colour: str, label: str) -> None:
    """A line of GiB; from the allocator's samples, none left out."""
    axes.plot(x, gap.gap_bytes / GIB, color=colour, linewidth=1.1, label=label)
