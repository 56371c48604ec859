"""Gamma lengths: one hump, a tail shorter than the log-normal's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workloads.lengths.base import check_bounds, check_cv, check_mean, whole_tokens


class GammaLengths:
    """Gamma with the mean and cv given, rounded and clipped.

    Shape k = 1 / cv^2 and scale mean_tokens / k. `mean_tokens` and `cv` are those before the clip
    to [min_tokens, max_tokens].
    """

    def __init__(
        self, *, mean_tokens: float, cv: float, max_tokens: int, min_tokens: int = 1
    ) -> None:
        kind = "gamma lengths"
        self.min_tokens, self.max_tokens = check_bounds(kind, min_tokens, max_tokens)
        mean = check_mean(kind, mean_tokens, (self.min_tokens, self.max_tokens))
        self._shape = check_cv(kind, cv) ** -2
        self._scale = mean / self._shape

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        lengths = rng.gamma(self._shape, self._scale, size)
        return whole_tokens(lengths, self.min_tokens, self.max_tokens)
