"""What repeats say: intervals that hold as often as they claim, and pairs taken as pairs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from bench.report.differences import difference_said
from bench.report.statistics import Estimate, mean, paired_change, unpaired_change

Draw = Callable[[np.random.Generator, int], np.ndarray]


@pytest.mark.parametrize("count", [5, 8, 20])
@pytest.mark.parametrize(
    ("draw", "true_mean"),
    [
        (lambda rng, n: rng.normal(1, 1, n), 1.0),
        (lambda rng, n: rng.lognormal(0, 0.5, n), float(np.exp(0.125))),
    ],
    ids=["normal", "lognormal"],
)
def test_an_interval_of_a_mean_has_it_in_most_samples(
    draw: Draw, true_mean: float, count: int
) -> None:
    """95 % is meant; of a skewed law a few more are missed (seen: 86 to 95 %)."""
    rng = np.random.default_rng(7)
    found = [mean(draw(rng, count)) for _ in range(300)]
    held = sum(e.low is not None and e.high is not None and e.low <= true_mean <= e.high
               for e in found)  # fmt: skip
    assert held / len(found) > 0.84


def test_pairs_show_a_change_that_differs_from_seed_to_seed_less_than_the_seeds_do() -> None:
    """Loads of 1 to 9 with a 10 % change of each: sure as pairs, lost in the spread without."""
    before = np.array([1.0, 3.0, 5.0, 7.0, 9.0])
    after = before * [1.09, 1.10, 1.11, 1.10, 1.10]
    paired, unpaired = paired_change(before, after), unpaired_change(before, after)
    assert paired is not None
    assert unpaired is not None
    assert paired.value == unpaired.value == pytest.approx(after.sum() / 25 - 1)
    assert paired.excludes_zero
    assert not unpaired.excludes_zero


def test_few_repeats_have_no_interval() -> None:
    assert mean([1.0, 2.0, 3.0, 6.0]) == Estimate(3.0, 4)
    assert mean([1.0, 2.0, 3.0, 6.0]).excludes_zero is None
    assert mean([2.0] * 5) == Estimate(2.0, 5, 2.0, 2.0)


def test_a_change_from_nothing_is_undefined() -> None:
    assert paired_change([0.0, 0.0], [1.0, 2.0]) is None
    with pytest.raises(ValueError, match="no pairs"):
        paired_change([1.0], [1.0, 2.0])


def test_the_same_repeats_give_the_same_interval() -> None:
    values = [1.0, 2.0, 4.0, 8.0, 16.0]
    assert mean(values) == mean(list(values))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Estimate(0.123, 1), "+12 %"),
        (Estimate(-0.0123, 5, -0.02, -0.01), "-1.2 % (-2.0 to -1.0)"),
        (Estimate(2.1, 5, 1.9, 2.3), "\N{MULTIPLICATION SIGN}3.1 (2.9 to 3.3)"),
        (Estimate(0.01, 5, -0.01, 0.03), "\N{ALMOST EQUAL TO} (-1.0 to +3.0 %)"),
        (Estimate(1.5, 2), "\N{MULTIPLICATION SIGN}2.5"),
        (Estimate(-0.99, 5, -0.995, -0.98), "\N{DIVISION SIGN}100 (200 to 50)"),
        (Estimate(-1.0, 1), "-100 %"),
        (Estimate(0.12, 5, 0.003, 0.24), "+12.0 % (+0.3 to +24.0)"),
        (Estimate(0.00001, 1), "="),
        (Estimate(0.0, 5, 0.0, 0.0), "="),
    ],
)
def test_a_change_is_said_with_what_is_known_of_it(change: Estimate, said: str) -> None:
    assert difference_said(change) == said
