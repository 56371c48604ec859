"""Geometric lengths: after each one, the same chance that it was the last."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workloads.lengths.base import check_bounds, check_mean


class GeometricLengths:
    """1, 2, 3, ... with P(n) = p (1 - p)^(n - 1) and p = 1 / mean_tokens, cut at `max_tokens`.

    The least-assuming law for a number of turns of which only the mean is known. `mean_tokens` is
    the mean before the cut.
    """

    def __init__(self, *, mean_tokens: float, max_tokens: int) -> None:
        kind = "geometric lengths"
        self.min_tokens, self.max_tokens = check_bounds(kind, 1, max_tokens)
        self._last = 1 / check_mean(kind, mean_tokens, (1, self.max_tokens))

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        return np.minimum(rng.geometric(self._last, size), self.max_tokens)
