from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from workloads.base import WorkloadError
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
ALL: list[Lengths] = [
    FixedLength(tokens=512),
    UniformLengths(min_tokens=10, max_tokens=20),
    LognormalLengths(mean_tokens=166.28, cv=1.3, min_tokens=4, max_tokens=1024),
    GammaLengths(mean_tokens=349.07, cv=0.876, max_tokens=1024),
    GeometricLengths(mean_tokens=2.5, max_tokens=40),
    ZipfLengths(exponent=1.1, max_tokens=100_000),
    QuantileLengths(quantiles={0: 2, 0.5: 1020, 0.9: 2727, 1: 14_050}),
    MixtureLengths(
        components=[
            {"weight": 0.4, "lengths": GammaLengths(mean_tokens=50, cv=3, max_tokens=900)},
            {"weight": 0.6, "lengths": LognormalLengths(mean_tokens=9, cv=1, max_tokens=99)},
        ]
    ),
]
by_class = pytest.mark.parametrize("lengths", ALL, ids=lambda each: type(each).__name__)
WITH_MEAN = pytest.mark.parametrize("kind", [LognormalLengths, GammaLengths])


def draw(lengths: Lengths, size: int = DRAWS, seed: int = 0) -> np.ndarray:
    return lengths.draw(np.random.default_rng(seed), size)


@by_class
def test_lengths_are_whole_and_within_their_bounds(lengths: Lengths) -> None:
    drawn = draw(lengths)
    assert drawn.dtype == np.int64
    assert 1 <= lengths.min_tokens <= drawn.min() <= drawn.max() <= lengths.max_tokens


@by_class
def test_two_draws_in_a_row_are_one_draw(lengths: Lengths) -> None:
    rng = np.random.default_rng(3)
    parts = [*lengths.draw(rng, 7), *lengths.draw(rng, 0), *lengths.draw(rng, 93)]
    assert parts == draw(lengths, 100, seed=3).tolist()


@by_class
def test_arguments_are_by_keyword_only(lengths: Lengths) -> None:
    parameters = list(inspect.signature(type(lengths).__init__).parameters.values())[1:]
    assert {parameter.kind for parameter in parameters} == {inspect.Parameter.KEYWORD_ONLY}


@WITH_MEAN
@pytest.mark.parametrize("cv", [0.1, 0.8])
def test_mean_and_cv_are_those_asked_for(kind: Callable[..., Lengths], cv: float) -> None:
    drawn = draw(kind(mean_tokens=1000, cv=cv, max_tokens=10**6))
    # the mean's standard error is 1000 cv / sqrt(200,000) <= 1.8; 4 of them
    assert drawn.mean() == pytest.approx(1000, abs=4 * 1000 * cv / math.sqrt(DRAWS))
    assert drawn.std() / drawn.mean() == pytest.approx(cv, rel=0.03)


def test_lognormal_has_the_median_of_its_formula() -> None:
    drawn = draw(LognormalLengths(mean_tokens=1000, cv=1.0, max_tokens=10**7))
    # exp(mu) = mean / sqrt(1 + cv^2)
    assert np.median(drawn) == pytest.approx(1000 / math.sqrt(2), rel=0.01)


def test_gamma_of_cv_one_is_exponential() -> None:
    drawn = draw(GammaLengths(mean_tokens=1000, cv=1.0, max_tokens=10**7))
    assert np.median(drawn) == pytest.approx(1000 * math.log(2), rel=0.01)


def test_geometric_ends_after_each_with_the_same_chance() -> None:
    drawn = draw(ALL[4])
    for length in (1, 2, 5):
        longer, as_long = (drawn > length).sum(), (drawn >= length).sum()
        # P(n > length | n >= length) = 1 - 1 / 2.5; 4 binomial deviations
        assert longer / as_long == pytest.approx(0.6, abs=4 * math.sqrt(0.24 / as_long))
    assert draw(GeometricLengths(mean_tokens=1, max_tokens=9)).max() == 1


def test_geometric_lengths_are_cut_at_their_maximum() -> None:
    drawn = draw(GeometricLengths(mean_tokens=3, max_tokens=3))
    # P(n >= 3) = (2/3)^2; deviation 0.0011; 4 of them
    assert (drawn == 3).mean() == pytest.approx(4 / 9, abs=0.0045)
    assert drawn.max() == 3


def test_uniform_gives_every_length_alike() -> None:
    counts = np.bincount(draw(ALL[1]))[10:]
    # 11 lengths; binomial standard deviation 129; 5 of them
    assert np.abs(counts - DRAWS / 11).max() < 645


@pytest.mark.parametrize(("lengths", "clipped_mean"), [(ALL[2], 161.31), (ALL[3], 337.99)])
def test_the_clip_moves_the_sharegpt_means_to_the_published_ones(
    lengths: Lengths, clipped_mean: float
) -> None:
    # docs/arrivals.md: the sum over n of P(length >= n); standard error at most 0.65
    assert draw(lengths).mean() == pytest.approx(clipped_mean, abs=2.6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedLength(tokens=0), "min_tokens of a fixed length is 0"),
        (lambda: FixedLength(tokens="8"), "min_tokens of a fixed length is '8'"),
        (lambda: UniformLengths(min_tokens=9, max_tokens=8), "max_tokens of uniform lengths is 8"),
        (
            lambda: GammaLengths(mean_tokens=500, cv=1, max_tokens=100),
            "mean_tokens of gamma lengths is 500; it must be a number from 1 to 100 tokens",
        ),
        (
            lambda: GeometricLengths(mean_tokens=0.5, max_tokens=9),
            "mean_tokens of geometric lengths is 0.5; it must be a number from 1 to 9 tokens",
        ),
        (lambda: GammaLengths(mean_tokens=5, cv=0, max_tokens=10), "use FixedLength"),
        (
            lambda: LognormalLengths(mean_tokens=5, cv=-1, max_tokens=10),
            "cv of lognormal lengths is -1",
        ),
        (
            lambda: LognormalLengths(mean_tokens=True, cv=1, max_tokens=10),
            "mean_tokens of lognormal lengths is True",
        ),
        (
            lambda: ZipfLengths(max_tokens=9),
            "The choice of exponent or mean_tokens of zipf lengths is 'neither'; .* one of the two",
        ),
        (
            lambda: ZipfLengths(max_tokens=9, exponent=1, mean_tokens=4),
            "The choice of exponent or mean_tokens of zipf lengths is 'both'",
        ),
        (
            lambda: ZipfLengths(max_tokens=9, exponent=-1),
            "exponent of zipf lengths is -1; it must be a number from 0 to 10",
        ),
        (
            lambda: ZipfLengths(max_tokens=9, mean_tokens=5.1),
            r"mean_tokens of zipf lengths is 5.1; it must be a number from 1\.00\d* to 5 tokens",
        ),
        (lambda: ZipfLengths(max_tokens="9", exponent=1), "max_tokens of zipf lengths is '9'"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        make()
