"""Which family is chosen for lengths that are known to be of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench.traffic.fit.choice import NEAR_ENOUGH, NEAR_EVERYWHERE, choose, make_lengths
from bench.traffic.fit.families import gamma_shape
from bench.traffic.fit.target import Column, Ints, errors, ks_distance, quantile_of
from workloads.lengths.base import Lengths

LENGTHS = "workloads.lengths"


def made(target: str, **settings: Any) -> Lengths:
    lengths = make_lengths({"_target_": f"{LENGTHS}.{target}"} | settings)
    assert lengths is not None
    return lengths


def drawn(lengths: Lengths, size: int = 20_000) -> Ints:
    return lengths.draw(np.random.default_rng(1), size)


HUMP = {"_target_": f"{LENGTHS}.lognormal.LognormalLengths", "min_tokens": 1, "max_tokens": 9000}
TWO_HUMPS = [
    {"weight": 0.6, "lengths": HUMP | {"mean_tokens": 50, "cv": 0.5}},
    {"weight": 0.4, "lengths": HUMP | {"mean_tokens": 2000, "cv": 0.3}},
]


@pytest.mark.parametrize(
    ("family", "lengths"),
    [
        ("fixed", made("fixed.FixedLength", tokens=512)),
        ("uniform", made("uniform.UniformLengths", min_tokens=100, max_tokens=900)),
        ("lognormal", made("lognormal.LognormalLengths", mean_tokens=300, cv=1.2, max_tokens=9000)),
        ("gamma", made("gamma.GammaLengths", mean_tokens=1000, cv=0.7, max_tokens=9000)),
        ("zipf", made("zipf.ZipfLengths", exponent=1.0, max_tokens=5000)),
        ("mixture", made("mixture.MixtureLengths", components=TWO_HUMPS)),
    ],
)
def test_the_family_of_a_sample_is_found(family: str, lengths: Lengths) -> None:
    choice = choose(Column.of(drawn(lengths)))
    assert choice.chosen.candidate.family == family
    assert choice.chosen.worst <= NEAR_ENOUGH
    assert choice.chosen.ks <= NEAR_EVERYWHERE


def test_parameters_are_recovered() -> None:
    """To 3 %: at 20,000 lengths the mean's standard error is 0.8 %, and the cv's like it."""
    lengths = made("lognormal.LognormalLengths", mean_tokens=300, cv=1.2, max_tokens=90_000)
    settings = choose(Column.of(drawn(lengths))).chosen.candidate.settings
    assert settings["mean_tokens"] == pytest.approx(300, rel=0.03)
    assert settings["cv"] == pytest.approx(1.2, rel=0.03)


def test_lengths_of_no_family_get_a_table_of_their_quantiles() -> None:
    jagged = np.repeat([10, 11, 500, 501, 502, 4000], [300, 100, 250, 50, 200, 100])
    column = Column.of(jagged)
    chosen = choose(column).chosen
    assert chosen.candidate.family == "quantiles"
    # p50 is the 500th of 1,000; p90 the 900th, and p99 the 990th.
    lengths = make_lengths(chosen.candidate.settings)
    assert lengths is not None
    found = [quantile_of(lengths, share) for share in (0.5, 0.9, 0.99)]
    assert found == [500, 502, 4000]


def test_what_was_tried_says_which_was_chosen() -> None:
    choice = choose(Column.of(np.array([5, 6, 7, 8])))
    assert choice.chosen in choice.tried
    assert choose(Column.of(np.array([7]))).chosen.candidate.settings["tokens"] == 7


def test_errors_and_distance_are_those_of_the_definition() -> None:
    # Recorded 1, 1, 1, 2 and always 1: the mean is 1 instead of 1.25, p90 is 1 instead of 2, and
    # at 1 the shares are 1 and 0.75.
    column, one = Column.of(np.array([1, 1, 1, 2])), made("fixed.FixedLength", tokens=1)
    expected = {"mean": -0.2, "p50": 0, "p90": -0.5, "p99": -0.5}
    assert errors(column, one) == pytest.approx(expected)
    assert ks_distance(column, one) == 0.25
    # All recorded lengths are above it: at 2, just below 3, the shares are 1 and 0.
    assert ks_distance(Column.of(np.array([3, 4])), one) == 1.0


@pytest.mark.parametrize("shape", [0.3, 1.0, 8.0])
def test_the_likeliest_shape_is_within_its_stated_error(shape: float) -> None:
    """1.5 % of the closed form; 2 % of chance at 50,000 values, 3 standard errors."""
    values = np.random.default_rng(3).standard_gamma(shape, 50_000)
    assert gamma_shape(values, np.ones(len(values))) == pytest.approx(shape, rel=0.035)
