"""Inter-token latency of completed requests, kept by step instead of by token.

A sequence that gives a token in every step from a to b waited each of those steps' lengths once:
only the ends of such unbroken runs are kept, and the gaps in between (preemptions) one by one.
That is 8 bytes a step and 16 a request, for as long as an engine runs: percentiles are exact.
BinnedGaps takes the same memory however long it runs.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SHORTEST_S, BIN_RATIO, BINS = 1e-6, 1.01, 2800
"""Bins reach from 1 us to 14 days, each 1 % wide."""
TABLE = "inter_token"


class Emits(Protocol):
    """A sequence as these gaps see it."""

    first_step: int
    first_token_s: float | None
    gaps: list[tuple[int, int] | float]

    @property
    def last_step(self) -> int: ...
    @property
    def last_token_s(self) -> float | None: ...


class InterTokenGaps:
    """Gaps between the tokens of completed requests, in seconds."""

    def __init__(self) -> None:
        self._ends = array("d")
        self._runs = array("q")  # first step and last step of each run, in turn
        self._single = array("d")

    def step_ended(self, end_s: float) -> None:
        """A step's tokens came out at `end_s`."""
        self._ends.append(end_s)

    def run_broken(self, sequence: Emits, step: int, end_s: float) -> None:
        """The sequence gives a token in `step` but gave none in the step before."""
        if sequence.last_token_s is None:
            sequence.first_token_s = end_s
        else:
            sequence.gaps.append((sequence.first_step, sequence.last_step))
            sequence.gaps.append(end_s - sequence.last_token_s)
        sequence.first_step = step

    def completed(self, sequence: Emits) -> None:
        """Keeps the gaps of a request that completed."""
        sequence.gaps.append((sequence.first_step, sequence.last_step))
        for gap in sequence.gaps:
            if isinstance(gap, tuple):
                self._runs.extend(gap)
            else:
                self._single.append(gap)

    def weighted(self) -> tuple[np.ndarray, np.ndarray]:
        """Gap lengths in seconds and how often each occurred, both of one shape (n,)."""
        ends = np.frombuffer(self._ends, dtype=np.float64)
        starts = np.zeros(len(ends) + 1, dtype=np.int64)
        runs = np.frombuffer(self._runs, dtype=np.int64).reshape(-1, 2)
        # A run over steps a..b waited the gaps that end in steps a+1..b.
        np.add.at(starts, runs[:, 0] + 1, 1)
        np.add.at(starts, runs[:, 1] + 1, -1)
        counts = np.cumsum(starts)[1 : len(ends)]
        single = np.frombuffer(self._single, dtype=np.float64)
        lengths = np.concatenate([np.diff(ends), single])
        weights = np.concatenate([counts, np.ones(len(single), dtype=np.int64)])
        return lengths[weights > 0], weights[weights > 0]


class BinnedGaps(InterTokenGaps):
    """The same gaps, counted in bins: a length is known to within 0.5 %.

    Steps are kept until `forget`, which says from which one on an open sequence had tokens.
    """

    def __init__(self) -> None:
        super().__init__()
        self._first_step = 0
        self._counts = np.zeros(BINS, dtype=np.int64)

    def completed(self, sequence: Emits) -> None:
        for gap in (*sequence.gaps, (sequence.first_step, sequence.last_step)):
            if isinstance(gap, tuple):
                first, last = (step - self._first_step for step in gap)
                self._count(np.diff(self._ends[first : last + 1]))
            else:
                self._count(np.array([gap]))

    def _count(self, lengths_s: np.ndarray) -> None:
        np.add.at(self._counts, _bins_of(lengths_s), 1)

    def forget(self, before_step: int) -> None:
        """No open sequence had a token before that step."""
        if before_step > self._first_step:
            del self._ends[: before_step - self._first_step]
            self._first_step = before_step

    def bins(self) -> dict[str, int]:
        """Counts by bin, as JSON has them; `weighted_bins` reads them."""
        return {str(bin_): int(self._counts[bin_]) for bin_ in np.flatnonzero(self._counts)}

    def weighted(self) -> tuple[np.ndarray, np.ndarray]:
        return weighted_bins([self.bins()])


def write_gaps(folder: Path, lengths_s: np.ndarray, counts: np.ndarray) -> None:
    """Writes gaps of any lengths, counted in bins, to `folder`/inter_token: for a distribution."""
    binned = np.zeros(BINS, dtype=np.int64)
    np.add.at(binned, _bins_of(lengths_s), counts)
    found = np.flatnonzero(binned)
    (folder / TABLE).mkdir(exist_ok=True)
    table = pa.table({"gap_s": _middle_s(found), "count": binned[found]})
    pq.write_table(table, folder / TABLE / "part-00000.parquet")


def weighted_bins(counts: Iterable[Mapping[str, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Gap lengths in seconds and how often each occurred, both of one shape (n,), of the bins of
    several engines together."""
    total = np.zeros(BINS, dtype=np.int64)
    for each in counts:
        for bin_, count in each.items():
            total[int(bin_)] += count
    found = np.flatnonzero(total)
    return _middle_s(found), total[found]


def _bins_of(lengths_s: np.ndarray) -> np.ndarray:
    bins = np.log(np.maximum(lengths_s, SHORTEST_S) / SHORTEST_S) / np.log(BIN_RATIO)
    return np.asarray(np.minimum(bins.astype(int), BINS - 1))


def _middle_s(bins: np.ndarray) -> np.ndarray:
    return np.asarray(SHORTEST_S * BIN_RATIO ** (bins + 0.5))
