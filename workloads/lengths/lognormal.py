"""Log-normal lengths: many short ones and a long tail."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from workloads.lengths.base import check_bounds, check_cv, check_mean, whole_tokens


class LognormalLengths:
    """exp(N(mu, sigma)) with the mean and cv given, rounded and clipped.

    sigma^2 = ln(1 + cv^2) and mu = ln(mean_tokens) - sigma^2 / 2. `mean_tokens` and `cv` are those
    before the clip to [min_tokens, max_tokens].
    """

    def __init__(
        self, *, mean_tokens: float, cv: float, max_tokens: int, min_tokens: int = 1
    ) -> None:
        kind = "lognormal lengths"
        self.min_tokens, self.max_tokens = check_bounds(kind, min_tokens, max_tokens)
        mean = check_mean(kind, mean_tokens, (self.min_tokens, self.max_tokens))
        self._sigma = math.sqrt(math.log1p(check_cv(kind, cv) ** 2))
        self._mu = math.log(mean) - self._sigma**2 / 2

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        lengths = rng.lognormal(self._mu, self._sigma, size)
        return whole_tokens(lengths, self.min_tokens, self.max_tokens)
