"""Geometric lengths: after each one, the same chance that it was the last."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from workloads.lengths.base import check_bounds, check_mean


class GeometricLengths:
    """1, 2, 3, ... with P(n) = p (1 - p)^(n - 1) and p = 1 / mean, cut at `max_tokens`.

    The least-assuming law for a number of turns of which only the mean is known. The setting
    `mean_tokens` is the mean before the cut, the property `mean_tokens` that after it.
    """

    def __init__(self, *, mean_tokens: float, max_tokens: int) -> None:
        kind = "geometric lengths"
        self.min_tokens, self.max_tokens = check_bounds(kind, 1, max_tokens)
        self._last = 1 / check_mean(kind, mean_tokens, (1, self.max_tokens))

    @property
    def mean_tokens(self) -> float:
        """(1 - (1 - p)^max_tokens) / p: the sum of (1 - p)^n over n below max_tokens."""
        if self._last == 1:
            return 1.0
        return -math.expm1(self.max_tokens * math.log1p(-self._last)) / self._last

    def share_above(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        longer = (1 - self._last) ** np.maximum(tokens, 0).astype(np.float64)
        return np.where(tokens >= self.max_tokens, 0.0, longer)

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        return np.minimum(rng.geometric(self._last, size), self.max_tokens)
