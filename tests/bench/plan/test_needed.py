"""The layout that is recommended, and how many sequences it has to hold."""

from __future__ import annotations

import numpy as np
import pytest

from bench.plan.in_flight import most_in_flight
from bench.plan.layouts import BLOCKS, RESERVED, held
from bench.plan.needed import EITHER, recommend
from tests.bench.plan.test_layouts import lengths

# In each of 10 steps: 1,000 reserved, 272 in blocks: of 12,000 tokens 12 and 44.
SHORT = held(lengths((257, 10)), 1000)


@pytest.mark.parametrize(
    ("need", "layout"), [(12, RESERVED), (13, BLOCKS), (100, BLOCKS), (None, BLOCKS)]
)
def test_a_reservation_is_recommended_where_it_is_enough(need: int | None, layout: str) -> None:
    assert recommend(SHORT, 12_000, need).layout == layout


def test_no_layout_is_recommended_where_each_holds_as_many_and_too_few() -> None:
    # 990 of 1,000 tokens: 20 each way, and 20 of blocks of 992.
    almost_full = held(lengths((990, 1)), 1000)
    assert [recommend(almost_full, 20_000, need).layout for need in (20, 50, None)] == [
        RESERVED, EITHER, EITHER,
    ]  # fmt: skip


def test_in_flight_is_a_poisson_number_where_none_holds_up_another() -> None:
    # S(k) x rate = 4 whatever k: of a Poisson number with mean 4, P(<= 8) = 0.979, P(<= 9) = 0.992.
    assert most_in_flight(np.full(100, 4.0)) == 9


def test_in_flight_is_geometric_where_requests_share_one_server() -> None:
    # S(k) = k s: M/G/1, of which n are there with (1 - rho) rho^n. P(<= n) = 1 - 0.5^(n + 1).
    assert most_in_flight(0.5 * np.arange(1, 101)) == 6
