"""One length for every request."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workloads.lengths.base import check_bounds


class FixedLength:
    """Always `tokens` tokens."""

    def __init__(self, *, tokens: int) -> None:
        self.min_tokens, self.max_tokens = check_bounds("a fixed length", tokens, tokens)
        self.mean_tokens = float(tokens)

    def share_above(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        return (tokens < self.max_tokens).astype(np.float64)

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        return np.full(size, self.max_tokens, dtype=np.int64)
