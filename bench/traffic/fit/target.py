"""A column of a trace, as a fit sees it, and how far a distribution is from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from workloads.lengths.base import Lengths

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FITTED = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
"""What a fit is judged by, beside the mean."""


@dataclass(frozen=True)
class Column:
    """Lengths in tokens by how often each occurs: `values` ascend. Of a part, `marks` are lengths
    at which the whole is judged: what lies below them in the part counts there."""

    values: Ints
    counts: Ints
    marks: tuple[int, ...] = ()

    @classmethod
    def of(cls, lengths: Ints, marks: Iterable[int] = ()) -> Column:
        inside = (mark for mark in marks if lengths.min() < mark < lengths.max())
        return cls(*np.unique(lengths, return_counts=True), tuple(inside))

    def share_upto(self, length: int) -> float:
        """Of lengths at or below that one."""
        return float(self.counts[self.values <= length].sum() / self.counts.sum())

    @cached_property
    def shares(self) -> Floats:
        """Of lengths at or below each of `values`."""
        shares: Floats = np.cumsum(self.counts) / self.counts.sum()
        return shares

    def mean(self, of: Floats | Ints) -> float:
        """The mean over all lengths of what `of` has for each of `values`."""
        return float(np.average(of, weights=self.counts))

    def quantile(self, share: float) -> int:
        """The smallest length with at least that share at or below it."""
        place = int(np.searchsorted(self.shares, share - 1e-12))
        return int(self.values[min(place, len(self.values) - 1)])

    @property
    def bounds(self) -> tuple[int, int]:
        return int(self.values[0]), int(self.values[-1])


def quantile_of(lengths: Lengths, share: float) -> int:
    """The same of a distribution, by bisection."""
    below, at = lengths.min_tokens - 1, lengths.max_tokens
    while at - below > 1:
        middle = (below + at) // 2
        if lengths.share_above(np.array([middle]))[0] <= 1 - share + 1e-12:
            at = middle
        else:
            below = middle
    return at


def errors(column: Column, lengths: Lengths) -> dict[str, float]:
    """(the distribution's - the column's) / the column's, of the mean and of each percentile."""
    shares = FITTED.items()
    percentiles = {
        name: quantile_of(lengths, share) / column.quantile(share) - 1 for name, share in shares
    }
    return {"mean": lengths.mean_tokens / column.mean(column.values) - 1} | percentiles


def ks_distance(column: Column, lengths: Lengths) -> float:
    """Largest difference between the two distribution functions (Kolmogorov and Smirnov's): at a
    length that occurs, or just below it."""
    before = np.concatenate([[0.0], column.shares[:-1]])
    at = 1 - lengths.share_above(column.values)
    below = 1 - lengths.share_above(column.values - 1)
    return float(max(np.abs(at - column.shares).max(), np.abs(below - before).max()))
