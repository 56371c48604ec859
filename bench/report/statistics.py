"""What repeats say: means, and changes between paired runs, with bootstrap intervals.

An interval is a 95 % percentile bootstrap of a run's repeats, widened for few of them as Hesterberg
does ("What Teachers Should Know About the Bootstrap", 2015, section 4.4): the percentiles are
those of a normal at sqrt(n / (n - 1)) times Student's t. Below five repeats no resample can be as
extreme as that asks for (at three, one in four intervals would miss), and there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

LEAST_REPEATS = 5
RESAMPLES = 9_999
COVERAGE = 0.95

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A value and its interval; `low` and `high` are None below five repeats."""

    value: float
    repeats: int
    low: float | None = None
    high: float | None = None

    @property
    def excludes_zero(self) -> bool | None:
        """Whether the interval lies on one side of 0; None where there is none."""
        if self.low is None or self.high is None:
            return None
        return self.low > 0 or self.high < 0


def mean(values: Sequence[float]) -> Estimate:
    """The mean of one number over a run's repeats. Raises ValueError without any."""
    sample = np.asarray(values, dtype=float)
    if not len(sample):
        raise ValueError("no repeats")
    return _estimate(float(sample.mean()), sample, sample[_resamples(len(sample))].mean(axis=1))


def paired_change(before: Sequence[float], after: Sequence[float]) -> Estimate | None:
    """mean(after) / mean(before) - 1 of runs that had the same requests, in the same order; pairs
    are drawn together. None where `before` is 0."""
    if len(before) != len(after):
        raise ValueError(f"{len(before)} and {len(after)} repeats are no pairs")
    pairs = np.asarray([before, after], dtype=float)
    return _change(pairs[0], pairs[1], _resamples(pairs.shape[1]), _resamples(pairs.shape[1]))


def unpaired_change(before: Sequence[float], after: Sequence[float]) -> Estimate | None:
    """The same of runs with other requests each. None where `before` is 0."""
    old, new = np.asarray(before, dtype=float), np.asarray(after, dtype=float)
    return _change(old, new, _resamples(len(old)), _resamples(len(new), stream=1))


def _change(old: Floats, new: Floats, rows: Any, new_rows: Any) -> Estimate | None:
    if not len(old) or not len(new) or old.mean() == 0:
        return None
    means = old[rows].mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        changes = new[new_rows].mean(axis=1) / means - 1
    shorter = min(old, new, key=len)
    return _estimate(float(new.mean() / old.mean() - 1), shorter, changes[means != 0])


def _estimate(value: float, sample: Floats, resampled: Floats) -> Estimate:
    count = len(sample)
    if count < LEAST_REPEATS:
        return Estimate(value, count)
    tail = _tail(count)
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Estimate(value, count, float(low), float(high))


def _tail(count: int) -> float:
    """The share of resamples beyond each end of an interval of so many repeats."""
    t = stdtrit(count - 1, (1 + COVERAGE) / 2)
    return float(ndtr(-sqrt(count / (count - 1)) * t))


@lru_cache(maxsize=64)
def _resamples(count: int, stream: int = 0) -> NDArray[np.int64]:
    """Which repeats each resample is made of, shape (RESAMPLES, count): the same ones always, so
    that a report says the same of the same runs."""
    return np.random.default_rng([count, stream]).integers(0, count, (RESAMPLES, count))
