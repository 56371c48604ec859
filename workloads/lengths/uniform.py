"""Every length between two bounds equally likely."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workloads.lengths.base import check_bounds


class UniformLengths:
    """Whole lengths from `min_tokens` to `max_tokens`, both included; mean (min + max) / 2."""

    def __init__(self, *, min_tokens: int, max_tokens: int) -> None:
        self.min_tokens, self.max_tokens = check_bounds("uniform lengths", min_tokens, max_tokens)
        self.mean_tokens = (self.min_tokens + self.max_tokens) / 2

    def share_above(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        number = self.max_tokens - self.min_tokens + 1
        return np.clip((self.max_tokens - tokens) / number, 0.0, 1.0)

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        return rng.integers(self.min_tokens, self.max_tokens, size, np.int64, endpoint=True)
