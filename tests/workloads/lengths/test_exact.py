"""What a distribution says of itself, and what it draws, against the same law by scipy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from scipy import special, stats

from workloads.lengths.base import Lengths
from workloads.lengths.fixed import FixedLength
from workloads.lengths.gamma import GammaLengths
from workloads.lengths.geometric import GeometricLengths
from workloads.lengths.lognormal import LognormalLengths
from workloads.lengths.mixture import MixtureLengths
from workloads.lengths.quantiles import QuantileLengths
from workloads.lengths.uniform import UniformLengths
from workloads.lengths.zipf import ZipfLengths

DRAWS = 200_000


class Case(NamedTuple):
    """A distribution, and P(length > n) by scipy for n within its bounds (whole numbers)."""

    lengths: Lengths
    above: Callable[[np.ndarray], np.ndarray]

    def shares_above(self) -> np.ndarray:
        """P(length > n) for n from min_tokens to max_tokens - 1."""
        return self.above(np.arange(self.lengths.min_tokens, self.lengths.max_tokens))

    def quantile(self, share: float) -> int:
        """The smallest length that at least `share` of all lengths do not exceed."""
        below = 1 - self.shares_above()
        return self.lengths.min_tokens + int(np.searchsorted(below, share))


def lognormal(mean: float, cv: float, least: int, most: int) -> Case:
    lengths = LognormalLengths(mean_tokens=mean, cv=cv, min_tokens=least, max_tokens=most)
    sigma = math.sqrt(math.log(1 + cv**2))
    law = stats.lognorm(sigma, scale=mean / math.sqrt(1 + cv**2))
    return Case(lengths, lambda n: law.sf(n + 0.5))  # a length above n was above n + 1/2


def gamma(mean: float, cv: float, least: int, most: int) -> Case:
    lengths = GammaLengths(mean_tokens=mean, cv=cv, min_tokens=least, max_tokens=most)
    law = stats.gamma(cv**-2, scale=mean * cv**2)
    return Case(lengths, lambda n: law.sf(n + 0.5))


def zipf(exponent: float, least: int, most: int) -> Case:
    lengths = ZipfLengths(exponent=exponent, min_tokens=least, max_tokens=most)
    weights = np.arange(least, most + 1.0) ** -exponent
    above = 1 - np.cumsum(weights) / weights.sum()
    return Case(lengths, lambda n: above[n - least])


def mixture() -> Case:
    one, other = lognormal(60, 0.8, 4, 3000), gamma(2000, 0.2, 1000, 5000)
    parts = [{"weight": 3, "lengths": one.lengths}, {"weight": 1, "lengths": other.lengths}]

    def above(n: np.ndarray) -> np.ndarray:
        first = np.where(n < 4, 1, np.where(n < 3000, one.above(n), 0))
        second = np.where(n < 1000, 1, np.where(n < 5000, other.above(n), 0))
        return (3 * first + second) / 4

    return Case(MixtureLengths(components=parts), above)


def quantiles() -> Case:
    table = {0: 2, 0.5: 102, 0.9: 102, 1: 1102}
    law = stats.rv_histogram(([0.5, 0.1], [2, 102, 1102]), density=False)  # and 0.4 at 102
    return Case(QuantileLengths(quantiles=table), lambda n: 0.6 * law.sf(n + 0.5) + 0.4 * (n < 102))


CASES = {
    "fixed": Case(FixedLength(tokens=512), lambda n: np.ones(len(n))),
    "uniform": Case(UniformLengths(min_tokens=10, max_tokens=20), stats.randint(10, 21).sf),
    "geometric": Case(GeometricLengths(mean_tokens=2.5, max_tokens=40), stats.geom(0.4).sf),
    "lognormal": lognormal(166.28, 1.3, 4, 1024),
    "lognormal, long": lognormal(60_000, 2.0, 1, 300_000),
    "gamma": gamma(349.07, 0.876, 1, 1024),
    "gamma, bursty": gamma(50, 3.0, 1, 4096),
    "gamma, narrow": gamma(3000, 0.02, 10, 8192),
    "gamma, long": gamma(100_000, 1.0, 1, 400_000),
    "zipf": zipf(1.2, 1, 4096),
    "zipf, flat": zipf(0.4, 3, 100_000),
    "zipf, one": zipf(1.0, 100, 50_000),
    "quantiles": quantiles(),
    "mixture": mixture(),
}
each = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@each
def test_the_share_above_a_length_is_that_of_the_law(case: Case) -> None:
    least, most = case.lengths.min_tokens, case.lengths.max_tokens
    n = np.arange(least, most)
    assert np.all(np.abs(case.lengths.share_above(n) - case.shares_above()) < 1e-10)
    outside = np.array([0, least - 1, most, most + 1])
    assert case.lengths.share_above(outside).tolist() == [1, 1, 0, 0]


@each
def test_the_mean_is_the_sum_of_the_shares_above(case: Case) -> None:
    # E[length] = min + the sum of P(length > n) over n from min to max - 1
    exact = case.lengths.min_tokens + case.shares_above().sum()
    assert case.lengths.mean_tokens == pytest.approx(exact, rel=1e-8)


@each
def test_what_is_drawn_has_the_percentiles_of_the_law(case: Case) -> None:
    drawn = case.lengths.draw(np.random.default_rng(0), DRAWS)
    for share in (0.1, 0.5, 0.9, 0.99):
        # How many draws do not exceed the exact quantile is binomial: 4 standard deviations of it
        off = 4 * math.sqrt(share * (1 - share) / DRAWS)
        found = np.quantile(drawn, share, method="inverted_cdf")
        assert case.quantile(share - off) <= found <= case.quantile(share + off)


@each
def test_what_is_drawn_has_the_mean_that_is_stated(case: Case) -> None:
    drawn = case.lengths.draw(np.random.default_rng(1), DRAWS)
    assert drawn.mean() == pytest.approx(
        case.lengths.mean_tokens, abs=4 * drawn.std() / math.sqrt(DRAWS)
    )


@pytest.mark.parametrize(
    ("case", "stated"),
    [
        (lognormal(19.31, 0.772, 4, 1024), 19.3),
        (gamma(58.45, 1.005, 1, 1024), 58.5),
        (gamma(1154.7, 0.96, 2, 14_050), 1154.7),
        (gamma(211.1, 0.77, 7, 1000), 210.9),
        (gamma(2047.8, 0.964, 3, 7437), 2002.4),
        (lognormal(27.88, 2.147, 6, 1899), 28.7),
        (lognormal(3163, 0.107, 1050, 7710), 3163.0),
        (lognormal(208, 0.76, 7, 2180), 208.0),
        (lognormal(166.28, 1.3, 4, 1024), 161.3),
        (gamma(349.07, 0.876, 1, 1024), 338.0),
        (lognormal(7904, 0.504, 256, 7936), 6430.8),
        (lognormal(230.3, 0.476, 16, 512), 227.9),
        (lognormal(69.5, 1.3, 1, 512), 68.1),
        (lognormal(214.5, 1.0, 1, 1024), 210.2),
    ],
)
def test_the_means_after_the_clip_are_those_of_the_documentation(case: Case, stated: float) -> None:
    assert round(case.lengths.mean_tokens, 1) == stated  # docs/workloads.md


def test_zipf_is_exact_whatever_the_longest_length() -> None:
    longest = 2**31 - 1
    lengths = ZipfLengths(exponent=1, max_tokens=longest)

    def harmonic(n: np.ndarray) -> np.ndarray:
        return special.digamma(n + 1) + np.euler_gamma

    n = np.array([1, 2, 4095, 4096, 4097, 10**6, longest - 1])
    exact = 1 - harmonic(n) / harmonic(longest)
    assert lengths.share_above(n) == pytest.approx(exact, abs=1e-12)
    assert lengths.mean_tokens == pytest.approx(longest / harmonic(longest), rel=1e-9)
    drawn = lengths.draw(np.random.default_rng(0), DRAWS)
    # If n is drawn with P(n), P(length <= n) - P(n) U is uniform, for an independent uniform U
    spread = np.random.default_rng(1).random(DRAWS) / drawn
    uniform = (harmonic(drawn) - spread) / harmonic(longest)
    assert stats.kstest(uniform, "uniform").pvalue > 0.01


class Given(np.random.Generator):
    """A generator whose next numbers are given."""

    def __init__(self, numbers: np.ndarray) -> None:
        super().__init__(np.random.PCG64(0))
        self.numbers = numbers

    def random(self, size: int) -> np.ndarray:
        return self.numbers[:size]


@pytest.mark.parametrize("exponent", [0.3, 1.0, 1.7])
def test_zipf_changes_length_just_where_its_distribution_function_says(exponent: float) -> None:
    lengths = ZipfLengths(exponent=exponent, min_tokens=50, max_tokens=100_000)
    n = np.array([50, 51, 4000, *range(4140, 4160), 9999, 99_998])
    edges = 1 - lengths.share_above(n)
    for off, expected in ((-1e-14, n), (1e-14, n + 1)):
        assert lengths.draw(Given(edges + off), len(n)).tolist() == expected.tolist()


def test_zipf_is_exact_where_lengths_are_all_but_impossible() -> None:
    lengths = ZipfLengths(exponent=3, min_tokens=5000, max_tokens=3_000_000)
    random = np.random.default_rng(0).random(200_000)
    drawn = lengths.draw(Given(random), len(random))
    above = lengths.share_above(drawn)
    assert (above <= 1 - random + 1e-15).all()
    assert (lengths.share_above(drawn - 1) >= 1 - random - 1e-15).all()


def test_zipf_finds_the_exponent_of_a_mean() -> None:
    lengths = ZipfLengths(mean_tokens=300, max_tokens=4096)
    weights = np.arange(1, 4097.0) ** -lengths.exponent
    assert (np.arange(1, 4097) * weights).sum() / weights.sum() == pytest.approx(300, rel=1e-9)
    assert lengths.mean_tokens == pytest.approx(300, rel=1e-9)
