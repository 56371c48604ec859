"""The rate that a system sustains, and ratios of two."""

from __future__ import annotations

import math

import pytest

from bench.paper.curves import BOUND_S, LATENCY, rates_rps, sustained_rows, sustained_rps
from bench.paper.figure import Row, published
from bench.paper.systems import MAX, VLLM, System


def curve(system: System, points: list[tuple[float, float | None]]) -> list[Row]:
    return [
        Row(panel="p", system=system.label, quantity=LATENCY, unit="s/token", ours=latency, x=rate)
        for rate, latency in points
    ]


def test_rates_rise_by_one_factor_to_the_top() -> None:
    assert rates_rps(8.0, 4, 0.5) == [1.0, 2.0, 4.0, 8.0]


def test_the_sustained_rate_lies_between_the_rates_around_the_bound() -> None:
    # In logarithms: the bound is halfway between a quarter and four times of it, so is the rate.
    rows = curve(VLLM, [(1.0, BOUND_S / 8), (2.0, BOUND_S / 4), (8.0, 4 * BOUND_S)])
    assert sustained_rps(rows) == pytest.approx(math.sqrt(2.0 * 8.0))


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(1.0, BOUND_S / 2), (2.0, BOUND_S)],  # never above it
        [(1.0, 2 * BOUND_S), (2.0, 3 * BOUND_S)],  # above it from the first on
        [(1.0, None), (2.0, 2 * BOUND_S)],  # the run at 1 failed
    ],
)
def test_a_rate_is_not_guessed_beyond_the_rates_that_were_run(
    points: list[tuple[float, float | None]],
) -> None:
    assert sustained_rps(curve(VLLM, points)) is None


def test_a_ratio_is_of_the_sustained_rates() -> None:
    best = curve(VLLM, [(2.0, BOUND_S / 4), (8.0, 4 * BOUND_S)])
    other = curve(MAX, [(1.0, BOUND_S / 4), (4.0, 4 * BOUND_S)])
    rows = sustained_rows([*best, *other], VLLM, {MAX: published("there", 2.7, 8.0)})
    assert [(row.system, row.ours) for row in rows] == [
        (VLLM.label, pytest.approx(4.0)), (MAX.label, pytest.approx(2.0)),
        (MAX.label, pytest.approx(2.0)),
    ]  # fmt: skip
    assert rows[-1].difference == pytest.approx(2.0 - 2.7)


def test_a_ratio_without_one_of_the_rates_is_undefined() -> None:
    best = curve(VLLM, [(2.0, BOUND_S / 4), (8.0, 4 * BOUND_S)])
    rows = sustained_rows([*best, *curve(MAX, [(1.0, 1.0)])], VLLM, {MAX: None})
    assert [row.ours for row in rows] == [pytest.approx(4.0), None, None]
    assert "no crossing" in rows[-1].note
