"""Arrival processes found again in times that they made."""

from __future__ import annotations

from itertools import chain, islice

import numpy as np
import pytest

from bench.traffic.fit.gaps import fit_arrivals
from bench.traffic.fit.target import Ints
from workloads.arrivals.base import NS_PER_S, Arrivals
from workloads.arrivals.constant import ConstantArrivals
from workloads.arrivals.gamma import GammaArrivals
from workloads.arrivals.poisson import PoissonArrivals


def times_ns(process: Arrivals, rate_rps: float = 4.0, size: int = 20_000) -> Ints:
    chunks = process.times_ns(np.random.default_rng(2), rate_rps)
    return np.array(list(islice(chain.from_iterable(chunks), size)))


@pytest.mark.parametrize(
    ("family", "process"),
    [
        ("constant", ConstantArrivals()),
        ("poisson", PoissonArrivals()),
        ("gamma", GammaArrivals(burstiness=0.4)),
        ("gamma", GammaArrivals(burstiness=4.0)),
    ],
)
def test_a_process_is_found_in_its_times(family: str, process: Arrivals) -> None:
    """The rate's standard error is cv / sqrt(20,000), 1.1 % at a burstiness of 0.4."""
    fit = fit_arrivals(times_ns(process))
    assert fit.chosen.family == family
    assert fit.rate_rps == pytest.approx(4.0, rel=0.035)
    assert fit.step_s is None


def test_burstiness_is_recovered() -> None:
    settings = fit_arrivals(times_ns(GammaArrivals(burstiness=0.4))).chosen.settings
    assert settings["burstiness"] == pytest.approx(0.4, rel=0.05)


def test_coarse_times_are_told_by_their_counts() -> None:
    """Times down to whole 3 s: gaps are 0 or 3 s and more. Counts of a process of burstiness 0.5
    have a variance / mean of 2 in long windows; here 160 windows, of 30 s."""
    whole = 3 * NS_PER_S
    coarse = times_ns(GammaArrivals(burstiness=0.5)) // whole * whole
    fit = fit_arrivals(coarse)
    assert fit.step_s == 3.0
    assert fit.dispersion == pytest.approx(2.0, rel=0.35)  # 3 standard errors, sqrt(2 / 160)
    assert fit.chosen.settings["burstiness"] == pytest.approx(1 / fit.dispersion, rel=1e-3)
    assert any("at least 3 s apart" in note for note in fit.notes)


def test_times_of_one_moment_have_no_rate() -> None:
    fit = fit_arrivals(np.zeros(50, dtype=np.int64))
    assert (fit.rate_rps, fit.gap_cv) == (None, None)
    assert "set rate_rps" in fit.notes[0]


def test_few_gaps_tell_nothing_of_burstiness() -> None:
    fit = fit_arrivals(times_ns(GammaArrivals(burstiness=0.1), size=20))
    assert fit.chosen.family == "poisson"
    assert fit.gap_cv is None
