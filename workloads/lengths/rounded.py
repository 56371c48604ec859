"""What rounding and clipping make of a continuous law: its tail, and where its mean moves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Tail = Callable[[Floats], Floats]
"""P(X > x) of each x, all above 0."""

_SUMMED = 1 << 16


def share_above_rounded(
    tail: Tail, tokens: NDArray[np.int64], bounds: tuple[int, int]
) -> NDArray[np.float64]:
    """P(length > n) of each n of `tokens`, where the length is X rounded and clipped to
    `bounds`."""
    least, most = bounds
    inside = tail(np.maximum(tokens, least) + 0.5)
    return np.select([tokens < least, tokens >= most], [1.0, 0.0], inside)


def mean_rounded(tail: Tail, mean: float, biased_tail: Tail, bounds: tuple[int, int]) -> float:
    """The mean of X rounded and clipped to `bounds`, X of this `mean`: min + the sum of
    P(length > n) over n from min to max - 1.

    The first 65,536 terms are summed; beyond them the sum is the integral of the tail, by the
    midpoint rule, to 1e-8 of the mean. It is E[min(X, max)] - E[min(X, n)], which takes the tail
    of the size-biased law, of density x f(x) / mean.
    """
    least, most = bounds
    summed = min(most, least + _SUMMED)
    middles = np.arange(least, summed, dtype=np.float64) + 0.5
    ends = np.array([summed, most], dtype=np.float64)
    capped = mean * (1 - biased_tail(ends)) + ends * tail(ends)
    return float(least + tail(middles).sum() + capped[1] - capped[0])
