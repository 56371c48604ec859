"""Zipf lengths: each length rarer than the one before, by a power of it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from workloads.lengths.base import check_bounds
from workloads.settings import number, refusal

_STEEPEST = 10.0
_TABLED = 1 << 12
_BISECTIONS = 60

Floats = NDArray[np.float64]
Tokens = NDArray[np.int64]


class ZipfLengths:
    """P(n) in proportion to n^-exponent, for whole n from `min_tokens` to `max_tokens`; exponent 0
    is uniform. The least and the most are part of the law: nothing is clipped.

    Either `exponent` is given or `mean_tokens`, from which it is found. One random number a
    length is looked up in the exact distribution function, whatever the bounds.
    """

    def __init__(
        self,
        *,
        max_tokens: int,
        min_tokens: int = 1,
        exponent: float | None = None,
        mean_tokens: float | None = None,
    ) -> None:
        bounds = check_bounds("zipf lengths", min_tokens, max_tokens)
        self.min_tokens, self.max_tokens = bounds
        if (exponent is None) == (mean_tokens is None):
            given = "neither" if exponent is None else "both"
            name = "The choice of exponent or mean_tokens of zipf lengths"
            raise refusal(name, given, "one of the two", "set the other to null")
        if mean_tokens is None:
            unit, fix = "(an exponent, no unit)", "0 is uniform, 1 Zipf's law"
            self.exponent = number("exponent of zipf lengths", exponent, 0, _STEEPEST, unit, fix)
        else:
            self.exponent = _exponent_for(mean_tokens, bounds)
        self._powers = _PowerSums(*bounds, self.exponent)
        self.mean_tokens = _mean(bounds, self.exponent)

    def share_above(self, tokens: Tokens) -> Floats:
        inside = np.clip(tokens, self.min_tokens, self.max_tokens)
        shares = 1 - self._powers.upto(inside) / self._powers.total
        return np.select([tokens < self.min_tokens, tokens >= self.max_tokens], [1.0, 0.0], shares)

    def draw(self, rng: np.random.Generator, size: int) -> Tokens:
        return self._powers.first_above(rng.random(size) * self._powers.total)


class _PowerSums:
    """Sums of (n / least)^-exponent over whole n from `least` on, up to `most`.

    The first 4,096 are a table. Beyond it a sum is the integral of the powers by the midpoint rule
    with its first correction, the slope's (Euler and Maclaurin): exact to 1e-11.
    """

    def __init__(self, least: int, most: int, exponent: float) -> None:
        self._least, self._most, self._exponent = least, most, exponent
        tabled = np.arange(least, min(most + 1, least + _TABLED))
        self._table = np.cumsum((tabled / least) ** -exponent)
        self._start = least + len(tabled) - 0.5
        """Where the integral begins: half above the last length of the table."""
        self._scale: float = self._start * (self._start / least) ** -exponent
        self.total = float(self.upto(np.array([most]))[0])

    def upto(self, n: Tokens) -> Floats:
        """The sum from `least` to each of `n`, all of which are in [least, most]."""
        tabled = self._table[np.clip(n - self._least, 0, len(self._table) - 1)]
        above = np.maximum(n + 0.5, self._start)
        return tabled + self._integral(above) + self._correction(above)

    def first_above(self, sums: Floats) -> Tokens:
        """The smallest n whose sum exceeds each of `sums`, all of which are below the total."""
        n = self._least + np.searchsorted(self._table, sums, side="right")
        far = n >= self._start
        n[far] = self._first_above_table(sums[far])
        return n

    def _first_above_table(self, sums: Floats) -> Tokens:
        # The integral alone is inverted, then with the correction where that fell: n is right but
        # for roundings, one at most.
        rest = sums - self._table[-1]
        first, end = math.ceil(self._start), self._most + 0.5
        about = np.minimum(self._inverse(rest), end)
        n = np.rint(self._inverse(rest - self._correction(about)))
        n = np.clip(n, first, self._most).astype(np.int64)
        n -= (n > first) & (self.upto(n - 1) > sums)
        n += (n < self._most) & (self.upto(n) <= sums)
        return n

    def _integral(self, x: Floats) -> Floats:
        """Of (t / least)^-exponent over t from the start to each x."""
        grown = np.log(x / self._start)
        power = 1 - self._exponent
        integral: Floats = np.expm1(power * grown) / power if power else grown
        return integral * self._scale

    def _inverse(self, integral: Floats) -> Floats:
        power = 1 - self._exponent
        share = integral / self._scale
        grown: Floats = np.log1p(power * share) / power if power else share
        return np.exp(grown) * self._start

    def _correction(self, x: Floats) -> Floats:
        """-1/24 of how much the slope, -exponent (t / least)^-exponent / t, grows up to x."""
        slope = self._exponent * (x / self._least) ** -self._exponent / x
        first = self._exponent * self._scale / self._start**2
        return (slope - first) / 24


def _mean(bounds: tuple[int, int], exponent: float) -> float:
    least, most = bounds
    weighted = _PowerSums(least, most, exponent - 1).total
    return least * weighted / _PowerSums(least, most, exponent).total


def _exponent_for(mean_tokens: float, bounds: tuple[int, int]) -> float:
    """The exponent that gives the mean, by bisection. Raises WorkloadError where none does."""
    flat, steep = 0.0, _STEEPEST
    least, most = _mean(bounds, steep), _mean(bounds, flat)
    fix = "exponents from 0 to 10 give these means: move the mean, min_tokens or max_tokens"
    mean = number("mean_tokens of zipf lengths", mean_tokens, least, most, "tokens", fix)
    for _ in range(_BISECTIONS):
        exponent = (flat + steep) / 2
        if _mean(bounds, exponent) > mean:
            flat = exponent
        else:
            steep = exponent
    return (flat + steep) / 2
