from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from workloads.base import Source, WorkloadError
from workloads.lengths.fixed import FixedLength
from workloads.lengths.uniform import UniformLengths
from workloads.shared_texts import SharedTexts, check_texts, shared_segment

DRAWS = 20_000


def make(count: int = 3, exponent: float = 1.0) -> SharedTexts:
    lengths = UniformLengths(min_tokens=10, max_tokens=1000)
    return SharedTexts(count=count, tokens=lengths, exponent=exponent)


def test_the_nth_text_is_picked_in_proportion_to_its_rank_to_the_minus_exponent() -> None:
    counts = np.bincount(make().draw(np.random.default_rng(0), DRAWS), minlength=3)
    # weights 1, 1/2, 1/3: 6/11, 3/11, 2/11; binomial deviation at most 71; 4 of them
    assert np.abs(counts - DRAWS * np.array([6, 3, 2]) / 11).max() < 284


def test_an_exponent_of_zero_picks_all_alike() -> None:
    counts = np.bincount(make(4, exponent=0).draw(np.random.default_rng(0), DRAWS))
    assert np.abs(counts - DRAWS / 4).max() < 245  # 4 deviations of 61


def test_distinct_picks_are_made_one_after_another_among_those_left() -> None:
    rng = np.random.default_rng(0)
    texts = make()
    picks = [tuple(texts.draw_distinct(rng, 2).tolist()) for _ in range(DRAWS)]
    p = [6 / 11, 3 / 11, 2 / 11]
    for one in range(3):
        for other in set(range(3)) - {one}:
            expected = DRAWS * p[one] * p[other] / (1 - p[one])
            assert picks.count((one, other)) == pytest.approx(expected, abs=4 * np.sqrt(expected))
    assert len(set(picks)) == 6


def test_many_texts_are_picked_by_the_same_law() -> None:
    """Of 40 the two most popular are picked by 35 % of picks: repeated ones are drawn again."""
    rng = np.random.default_rng(0)
    texts = make(40)
    picks = [tuple(texts.draw_distinct(rng, 2).tolist()) for _ in range(DRAWS)]
    p = texts.probabilities
    for one, other in ((0, 1), (1, 0), (0, 39), (5, 0)):
        expected = DRAWS * p[one] * p[other] / (1 - p[one])
        assert picks.count((one, other)) == pytest.approx(expected, abs=4 * np.sqrt(expected))
    assert all(one != other for one, other in picks)


def test_all_texts_may_be_picked() -> None:
    assert sorted(make(9).draw_distinct(np.random.default_rng(1), 9).tolist()) == list(range(9))


def test_two_draws_in_a_row_are_one_draw() -> None:
    rng = np.random.default_rng(3)
    parts = [*make().draw(rng, 7), *make().draw(rng, 0), *make().draw(rng, 93)]
    assert parts == make().draw(np.random.default_rng(3), 100).tolist()


def test_a_texts_length_is_its_own_however_many_there_are() -> None:
    few, many = make(5).segments("documents"), make(500).segments("documents")
    assert many[:5] == few
    assert len({segment.tokens for segment in many}) > 100
    assert all(10 <= segment.tokens <= 1000 for segment in many)


def test_texts_of_different_names_are_different() -> None:
    ids = {segment.id for name in ("a", "b") for segment in make(50).segments(name)}
    assert len(ids) == 100
    assert shared_segment("a", 7, 3) == (Source.SHARED, make(50).segments("a")[7].id, 3)
    assert max(ids) < 2**63


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"count": 0}, "count of shared texts is 0; it must be a whole number from 1 to"),
        ({"exponent": -1}, "exponent of shared texts is -1; it must be a number from 0 to 10"),
        ({"tokens": 300}, "tokens of shared texts is 300; .*FixedLength, tokens: 300"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        SharedTexts(**{"count": 3, "tokens": FixedLength(tokens=9), **settings})
    with pytest.raises(WorkloadError, match=r"workload\.documents is 5; it must be"):
        check_texts("workload.documents", 5)
