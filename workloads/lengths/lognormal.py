"""Log-normal lengths: many short ones and a long tail."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from workloads.lengths.base import check_bounds, check_cv, check_mean, whole_tokens
from workloads.lengths.rounded import mean_rounded, share_above_rounded

_erfc = np.vectorize(math.erfc, otypes=[np.float64])


class LognormalLengths:
    """exp(N(mu, sigma)) with the mean and cv given, rounded and clipped.

    sigma^2 = ln(1 + cv^2) and mu = ln(mean) - sigma^2 / 2. The settings `mean_tokens` and `cv` are
    those before the clip to [min_tokens, max_tokens], the property `mean_tokens` is that after it.
    """

    def __init__(
        self, *, mean_tokens: float, cv: float, max_tokens: int, min_tokens: int = 1
    ) -> None:
        kind = "lognormal lengths"
        self.min_tokens, self.max_tokens = check_bounds(kind, min_tokens, max_tokens)
        mean = check_mean(kind, mean_tokens, (self.min_tokens, self.max_tokens))
        self._sigma = math.sqrt(math.log1p(check_cv(kind, cv) ** 2))
        self._mu = math.log(mean) - self._sigma**2 / 2

    @cached_property
    def mean_tokens(self) -> float:
        mean = math.exp(self._mu + self._sigma**2 / 2)
        bounds = (self.min_tokens, self.max_tokens)
        # size-biased, it is log-normal again, with mu + sigma^2
        return mean_rounded(self._tail, mean, lambda x: self._tail(x, self._sigma**2), bounds)

    def share_above(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        return share_above_rounded(self._tail, tokens, (self.min_tokens, self.max_tokens))

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        lengths = rng.lognormal(self._mu, self._sigma, size)
        return whole_tokens(lengths, self.min_tokens, self.max_tokens)

    def _tail(self, x: NDArray[np.float64], shift: float = 0.0) -> NDArray[np.float64]:
        off = (np.log(x) - self._mu - shift) / self._sigma
        tail: NDArray[np.float64] = _erfc(off / math.sqrt(2)) / 2
        return tail
