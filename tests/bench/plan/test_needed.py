"""The layout that is recommended, and how many sequences it has to hold."""

from __future__ import annotations

import pytest

from bench.plan.layouts import BLOCKS, RESERVED, held
from bench.plan.needed import recommend
from tests.bench.plan.test_layouts import lengths

# In each of 10 steps: 1,000 reserved, 272 in blocks: of 12,000 tokens 12 and 44.
SHORT = held(lengths((257, 10)), 1000)


@pytest.mark.parametrize(
    ("need", "layout"), [(12, RESERVED), (13, BLOCKS), (100, BLOCKS), (None, BLOCKS)]
)
def test_a_reservation_is_recommended_where_it_is_enough(need: int | None, layout: str) -> None:
    assert recommend(SHORT, 12_000, need).layout == layout


def test_as_many_by_reservation_is_as_good() -> None:
    # 990 of 1,000 tokens: 20 each way, and 20 of blocks of 992.
    almost_full = held(lengths((990, 1)), 1000)
    for need in (None, 50):
        assert recommend(almost_full, 20_000, need).layout == RESERVED
