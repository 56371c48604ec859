from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pytest

from workloads.base import WorkloadError
from workloads.lengths.quantiles import QuantileLengths


def test_lengths_are_uniform_between_two_quantiles() -> None:
    lengths = QuantileLengths(quantiles={0: 10, 0.5: 20, 1: 1020})
    drawn = lengths.draw(np.random.default_rng(0), 100_000)
    # 10 to 19.5 is rounded to whole numbers below 20: half a token to 10, one each to 11 .. 19,
    # whose sum is 135; deviation below 3; 4 standard errors
    assert drawn[drawn < 20].mean() == pytest.approx((0.5 * 10 + 135) / 9.5, abs=0.055)
    assert lengths.mean_tokens == (15 + 520) / 2  # halves of mean 15 and 520
    assert drawn.mean() == pytest.approx(267.5, abs=4 * drawn.std() / np.sqrt(100_000))
    assert (lengths.min_tokens, lengths.max_tokens) == (10, 1020)


def test_quantiles_may_come_in_any_order_and_be_alike() -> None:
    lengths = QuantileLengths(quantiles={1: 7, 0: 7})
    assert lengths.draw(np.random.default_rng(0), 5).tolist() == [7] * 5
    assert lengths.mean_tokens == 7
    atom = QuantileLengths(quantiles={1: 101, 0.2: 1, 0: 1})
    # P(1) = 0.2, and 0.8 / 100 of the half token above 1 that is rounded down to it
    assert atom.share_above(np.array([1])).tolist() == pytest.approx([0.8 * 99.5 / 100])


def test_probabilities_may_be_text_as_json_makes_them() -> None:
    table = {0: 2, 0.5: 1020, 1: 14_050}
    text = json.loads(json.dumps(table))
    one, other = QuantileLengths(quantiles=table), QuantileLengths(quantiles=text)
    drawn = one.draw(np.random.default_rng(0), 100)
    assert np.array_equal(drawn, other.draw(np.random.default_rng(0), 100))


@pytest.mark.parametrize(
    ("quantiles", "message"),
    [
        (None, "quantiles of quantile lengths is null; it must be a mapping"),
        (
            [2, 9],
            r"is \[2, 9\]; it must be a mapping of probabilities to tokens; give some such as",
        ),
        ({}, "is 'none'; it must be from 0 to 1"),
        ({0: 2, 0.5: 9}, r"is '0, 0\.5'; it must be from 0 to 1; add the shortest .* the longest"),
        (
            {0: 2, 50: 9, 1: 10},
            "A probability in quantiles .* is 50; it must be a number from 0 to",
        ),
        ({0: 2, "p50": 9, 1: 10}, "A probability in quantiles .* is 'p50'"),
        (
            {0: 0, 1: 9},
            "The quantile 0 in quantiles of quantile lengths is 0; .* whole number from",
        ),
        ({0: 2, 1: 9.5}, "The quantile 1 in quantiles of quantile lengths is 9.5"),
        ({0: 2, 0.5: 12, 1: 9}, "in ascending order of tokens; a larger probability cannot have a"),
    ],
)
def test_a_table_that_is_none_is_refused(quantiles: Mapping[float, int], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        QuantileLengths(quantiles=quantiles)
