"""Which distribution stands for a column: the simplest that is near enough."""

from __future__ import annotations

from typing import Any, NamedTuple

from bench.errors import SettingError
from bench.plugins import make
from bench.traffic.fit.families import TIERS, Candidate
from bench.traffic.fit.target import Column, errors, ks_distance
from workloads.base import WorkloadError
from workloads.lengths.base import Lengths

NEAR_ENOUGH = 0.03
"""Worst relative error of the mean, p50, p90 and p99: 5 % is wanted of what is drawn, and chance
adds some to the error of what it is drawn from."""
NEAR_EVERYWHERE = 0.1
"""Worst distance of the distribution functions: three percentiles can agree by chance."""


class Fit(NamedTuple):
    """A candidate and how far it is from its column; errors are relative."""

    candidate: Candidate
    errors: dict[str, float]
    ks: float

    @property
    def worst(self) -> float:
        return max(map(abs, self.errors.values()))


class Choice(NamedTuple):
    """All that was tried, and what was chosen of it."""

    chosen: Fit
    tried: list[Fit]


def choose(column: Column) -> Choice:
    """Of the simplest families that have one near enough, the one whose worst error is least; if
    none has, that of all."""
    tried: list[Fit] = []
    for tier in TIERS:
        fits = [fit for each in tier(column) if (fit := _judge(each, column)) is not None]
        tried += fits
        near = [fit for fit in fits if fit.worst <= NEAR_ENOUGH and fit.ks <= NEAR_EVERYWHERE]
        if near:
            return Choice(min(near, key=_distance), tried)
    return Choice(min(tried, key=_distance), tried)


def _distance(fit: Fit) -> tuple[float, float]:
    return round(fit.worst, 6), fit.ks


def _judge(candidate: Candidate, column: Column) -> Fit | None:
    """None for parameters that the family does not take."""
    lengths = make_lengths(candidate.settings)
    if lengths is None:
        return None
    return Fit(candidate, errors(column, lengths), ks_distance(column, lengths))


def make_lengths(settings: dict[str, Any]) -> Lengths | None:
    """The distribution of these settings, as a run makes it; None where it refuses them."""
    try:
        lengths: Lengths = make(settings, "workload")
    except (WorkloadError, SettingError):
        return None
    return lengths
