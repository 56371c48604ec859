"""Gamma lengths: one hump, a tail shorter than the log-normal's."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from workloads.lengths.base import check_bounds, check_cv, check_mean, whole_tokens
from workloads.lengths.rounded import mean_rounded, share_above_rounded


class GammaLengths:
    """Gamma with the mean and cv given, rounded and clipped.

    Shape k = 1 / cv^2 and scale mean / k. The settings `mean_tokens` and `cv` are those before the
    clip to [min_tokens, max_tokens], the property `mean_tokens` is that after it.
    """

    def __init__(
        self, *, mean_tokens: float, cv: float, max_tokens: int, min_tokens: int = 1
    ) -> None:
        kind = "gamma lengths"
        self.min_tokens, self.max_tokens = check_bounds(kind, min_tokens, max_tokens)
        mean = check_mean(kind, mean_tokens, (self.min_tokens, self.max_tokens))
        self._shape = check_cv(kind, cv) ** -2
        self._scale = mean / self._shape

    @cached_property
    def mean_tokens(self) -> float:
        mean = self._shape * self._scale
        bounds = (self.min_tokens, self.max_tokens)
        # size-biased, it is gamma again, of one shape more
        return mean_rounded(self._tail, mean, lambda x: self._tail(x, 1.0), bounds)

    def share_above(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        return share_above_rounded(self._tail, tokens, (self.min_tokens, self.max_tokens))

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        lengths = rng.gamma(self._shape, self._scale, size)
        return whole_tokens(lengths, self.min_tokens, self.max_tokens)

    def _tail(self, x: NDArray[np.float64], more: float = 0.0) -> NDArray[np.float64]:
        return 1 - _share_below(self._shape + more, x / self._scale)


def _share_below(shape: float, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(shape, x), the regularised lower incomplete gamma function, to 1e-8.

    By its power series x^k e^-x / Gamma(k + 1) (1 + x / (k + 1) + x^2 / ((k + 1) (k + 2)) + ...),
    whose terms are all positive: nothing cancels. Nine standard deviations off the mean, and 40
    more above, it is 0 or 1 to 1e-17 (Chernoff's bound).
    """
    spread = 9 * math.sqrt(shape)
    near = (x > shape - spread) & (x < shape + spread + 40)
    share = (x > shape).astype(np.float64)
    share[near] = _series(shape, x[near])
    return share


def _series(shape: float, x: NDArray[np.float64]) -> NDArray[np.float64]:
    term, total, n = np.ones_like(x), np.ones_like(x), shape
    while np.any(term > 1e-17 * total):
        n += 1
        term = term * x / n
        total += term
    return np.minimum(total * np.exp(shape * np.log(x) - x - math.lgamma(shape + 1)), 1.0)
