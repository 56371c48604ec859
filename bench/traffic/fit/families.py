"""Distributions fitted to a column of lengths: each function gives the settings of some.

Maximum likelihood weighs every length alike, and so the many; quantile matching, least squares of
the logarithms of p50, p90 and p99, weighs the tail. Both are tried where both are there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from bench.traffic.fit.target import FITTED, Column, Floats, Ints

LENGTHS = "workloads.lengths"
DIGITS = 6
TABLE = (
    0.0, 0.01, 0.02, *(n / 20 for n in range(1, 20)), 0.96, 0.97, 0.98, 0.985, 0.99, 0.9925, 0.995,
    0.9975, 0.999, 1.0,
)  # fmt: skip
"""Probabilities of a quantile table: near in the tail, where straight lines are far off."""
ROUNDS = 300
SHAPES = np.geomspace(0.02, 200, 400)
"""Of gamma distributions that are matched to quantiles: cv from 7 to 0.07."""
LOGS = np.linspace(-40, 7, 9_401)
"""Logarithms of gamma variates of scale 1, over which densities are summed."""


class Candidate(NamedTuple):
    """A family, how its parameters were found, and the settings of its `_target_`."""

    family: str
    how: str
    settings: dict[str, Any]


def simple(column: Column) -> Iterator[Candidate]:
    """Families of at most two parameters beside their bounds."""
    least, most = column.bounds
    fixed = {"tokens": column.quantile(0.5)}
    yield Candidate("fixed", "the median", _settings("fixed.FixedLength", fixed))
    bounds = {"min_tokens": least, "max_tokens": most}
    yield Candidate("uniform", "bounds", _settings("uniform.UniformLengths", bounds))
    if least == most:
        return
    for family, law in (("lognormal", _LOGNORMAL), ("gamma", _GAMMA)):
        for how, fit in (("likelihood", law.likely), ("quantiles", law.matched)):
            yield Candidate(family, how, _settings(law.target, _rounded(*fit(column)) | bounds))
    mean = {"mean_tokens": _digits(column.mean(column.values))}
    yield Candidate("zipf", "the mean", _settings("zipf.ZipfLengths", mean | bounds))


def mixture(column: Column) -> Iterator[Candidate]:
    """Two log-normal humps, by expectation-maximization from three starts."""
    if len(column.values) < 4:
        return
    least, most = column.bounds
    weights, means, deviations = max(
        (_two_humps(column, column.quantile(split)) for split in (0.2, 0.5, 0.8)),
        key=lambda humps: _likelihood(column, *humps),
    )
    components = [
        {
            "weight": _digits(weight),
            "lengths": _settings(
                _LOGNORMAL.target,
                _rounded(*_lognormal(mean, deviation)) | {"min_tokens": least, "max_tokens": most},
            ),
        }
        for weight, mean, deviation in zip(weights, means, deviations, strict=True)
    ]
    target = _settings("mixture.MixtureLengths", {"components": components})
    yield Candidate("mixture", "likelihood", target)


def table(column: Column) -> Iterator[Candidate]:
    """Straight lines between the column's own quantiles, and through its marks."""
    marks = {round(column.share_upto(mark), 6): mark for mark in column.marks}
    quantiles = {share: column.quantile(share) for share in TABLE} | marks
    ordered = dict(sorted(quantiles.items()))
    target = _settings("quantiles.QuantileLengths", {"quantiles": ordered})
    yield Candidate("quantiles", f"{len(ordered)} of them", target)


TIERS = (simple, mixture, table)
"""The simplest first."""


class _Law(NamedTuple):
    """A two-parameter law: mean and cv by maximum likelihood, and from three quantiles."""

    target: str
    likely: Callable[[Column], tuple[float, float]]
    matched: Callable[[Column], tuple[float, float]]


def _likely_lognormal(column: Column) -> tuple[float, float]:
    logs = np.log(column.values)
    mean = column.mean(logs)
    return _lognormal(mean, math.sqrt(column.mean((logs - mean) ** 2)))


def _matched_lognormal(column: Column) -> tuple[float, float]:
    """ln q = mu + sigma z: a straight line through the quantiles."""
    scores = [NormalDist().inv_cdf(share) for share in FITTED.values()]
    sigma, mu = np.polyfit(scores, _log_quantiles(column), 1)
    return _lognormal(float(mu), float(sigma))


def _lognormal(mu: float, sigma: float) -> tuple[float, float]:
    """Mean and cv of exp(N(mu, sigma))."""
    variance = max(sigma, 1e-3) ** 2
    return math.exp(mu + variance / 2), math.sqrt(math.expm1(variance))


def _likely_gamma(column: Column) -> tuple[float, float]:
    return column.mean(column.values), gamma_shape(column.values, column.counts) ** -0.5


def gamma_shape(values: Floats | Ints, counts: Floats | Ints) -> float:
    """The likeliest shape for values above 0, by the closed form that is within 1.5 % of it: the
    start of Minka's iteration (Estimating a gamma distribution, 2002)."""
    mean, log_mean = (np.average(x, weights=counts) for x in (values, np.log(values)))
    s = max(math.log(mean) - log_mean, 1e-9)
    return float(3 - s + math.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)


def _matched_gamma(column: Column) -> tuple[float, float]:
    """The shape whose quantiles are nearest in their ratios; the scale follows."""
    wanted = _log_quantiles(column)
    off = np.array([wanted - _log_gamma_quantiles(shape) for shape in SHAPES])
    best = int(np.argmin(off.var(axis=1)))
    shape = float(SHAPES[best])
    return shape * math.exp(float(off[best].mean())), shape**-0.5


def _log_gamma_quantiles(shape: float) -> Floats:
    """Of scale 1: its logarithm has density exp(k u - e^u) / Gamma(k)."""
    density = np.exp(shape * LOGS - np.exp(LOGS) - math.lgamma(shape))
    shares = np.cumsum(density)
    return np.interp(list(FITTED.values()), shares / shares[-1], LOGS)


_LOGNORMAL = _Law("lognormal.LognormalLengths", _likely_lognormal, _matched_lognormal)
_GAMMA = _Law("gamma.GammaLengths", _likely_gamma, _matched_gamma)


def _log_quantiles(column: Column) -> Floats:
    return np.log([column.quantile(share) for share in FITTED.values()])


def _two_humps(column: Column, split: int) -> tuple[Floats, Floats, Floats]:
    """Weights, means and deviations of the logarithms' two normal components, which start as what
    is up to `split` and what is above."""
    logs = np.log(column.values)
    counts = column.counts / column.counts.sum()
    upper = column.values > split
    belongs = np.where([~upper, upper], 0.99, 0.01)
    for _ in range(ROUNDS):
        weights = belongs @ counts
        means = (belongs * counts) @ logs / weights
        off = logs - means[:, None]
        variances = np.sum(belongs * counts * off**2, axis=1) / weights
        deviations = np.sqrt(np.maximum(variances, 1e-4))  # a hump on one length has none
        densities = _densities(logs, weights, means, deviations)
        belongs = densities / np.maximum(densities.sum(axis=0), 1e-300)
    return weights, means, deviations


def _densities(logs: Floats, weights: Floats, means: Floats, deviations: Floats) -> Floats:
    """Of each component at each logarithm, times its weight; a row a component."""
    off = (logs - means[:, None]) / deviations[:, None]
    return (weights / deviations)[:, None] * np.exp(-(off**2) / 2)


def _likelihood(column: Column, *humps: Floats) -> float:
    densities = _densities(np.log(column.values), *humps).sum(axis=0)
    return column.mean(np.log(np.maximum(densities, 1e-300)))


def _settings(target: str, settings: dict[str, Any]) -> dict[str, Any]:
    return {"_target_": f"{LENGTHS}.{target}"} | settings


def _rounded(mean_tokens: float, cv: float) -> dict[str, float]:
    return {"mean_tokens": _digits(mean_tokens), "cv": _digits(cv)}


def _digits(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
