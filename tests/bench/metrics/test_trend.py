"""The trend of reserved - allocated on series whose slopes are known."""

from __future__ import annotations

import numpy as np
import pytest

from bench.metrics.trend import MIB, Series, after_warm_up, trend
from workloads.streams import stream

USABLE = 40 << 30
TOLERANCE = 0.01 * 40 * 1024 / 24  # MiB/h
EVERY_S = 5.0
SD_MIB = 50.0


def noise(rng: np.random.Generator, count: int, correlation: float) -> np.ndarray:
    """An AR(1) series in its stationary state, in MiB."""
    values = rng.standard_normal(count) * SD_MIB
    driven = np.sqrt(1 - correlation**2)
    for place in range(1, count):
        values[place] = correlation * values[place - 1] + driven * values[place]
    return values


def series(gap_mib: np.ndarray, start_s: float = 0.0, allocated: int = 5 << 30) -> Series:
    """Samples every 5 s with so much between reserved and allocated, which is constant."""
    times_s = start_s + np.arange(len(gap_mib)) * EVERY_S
    allocated_bytes = np.full(len(gap_mib), float(allocated))
    return Series(times_s, allocated_bytes + gap_mib * MIB, allocated_bytes)


def growing(count: int, mib_per_h: float) -> np.ndarray:
    return 500 + mib_per_h * np.arange(count) * EVERY_S / 3600


def coverage(runs: int, count: int, correlation: float, segments: int) -> float:
    """The share of intervals with the true slope in them."""
    rng = np.random.default_rng(count + int(1000 * correlation))
    found = 0
    for seed in range(runs):
        parts = np.array_split(growing(count, 100.0), segments)
        starts = np.cumsum([0, *map(len, parts)]) * EVERY_S
        whole = [
            series(part + noise(rng, len(part), correlation) + rng.normal() * 1000, start_s)
            for part, start_s in zip(parts, starts, strict=False)
        ]
        result = trend(whole, USABLE, seed)
        assert result is not None
        found += result.low_mib_per_h <= 100 <= result.high_mib_per_h
    return found / runs


def test_the_interval_has_the_slope_in_most_series() -> None:
    # of 24 series 23 are expected; fewer than 18 have a probability below 0.1 % at 95 %
    assert coverage(24, count=1000, correlation=0.9, segments=1) >= 18 / 24


@pytest.mark.long
@pytest.mark.parametrize("segments", [1, 3])
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, 0.97])
def test_the_interval_covers_95_percent(correlation: float, segments: int) -> None:
    # 3 standard errors of a share of 0.95 in 400 are 0.033
    share = coverage(400, count=2000, correlation=correlation, segments=segments)
    assert 0.90 <= share <= 0.985


def test_growth_is_seen_with_the_time_that_is_left() -> None:
    gap = growing(1000, 300.0) + noise(np.random.default_rng(1), 1000, 0.5)
    result = trend([series(gap)], USABLE, 0)
    assert result is not None
    assert result.verdict == "grows"
    assert result.slope_mib_per_h == pytest.approx(300, abs=15)
    left_mib = 35 * 1024 - gap[-1]  # allocated takes 5 GiB of 40
    assert result.exhaustion_h == pytest.approx(left_mib / result.slope_mib_per_h)


def test_no_growth_is_said_only_of_a_narrow_interval() -> None:
    rng = np.random.default_rng(2)
    long = trend([series(500 + noise(rng, 8000, 0.5))], USABLE, 0)
    short = trend([series(500 + noise(rng, 200, 0.5))], USABLE, 0)
    assert long is not None
    assert short is not None
    assert long.tolerance_mib_per_h == pytest.approx(TOLERANCE)
    assert (long.verdict, short.verdict) == ("no growth", "not settled")


def test_a_step_at_a_restart_is_no_slope() -> None:
    """0.5 GiB before it, 8 GiB after it."""
    before, after = np.full(1200, 512.0), np.full(1200, 8192.0)
    result = trend([series(before), series(after, start_s=6000.0)], USABLE, 0)
    assert result is not None
    assert (result.segments, result.slope_mib_per_h) == (2, 0)
    assert result.verdict == "no growth"
    joined = trend([series(np.concatenate([before, after]))], USABLE, 0)
    assert joined is not None
    assert joined.slope_mib_per_h > 1000  # what a fit across the restart would say


def test_a_constant_series_does_not_grow_once_a_segment_would_have_shown() -> None:
    """20 MiB over what is left of the time after a tenth: 13.3 MiB/h in 100 minutes, 133 in 10."""
    hundred, ten = (trend([series(np.full(n, 700.0))], USABLE, 0) for n in (1200, 120))
    assert hundred is not None
    assert ten is not None
    assert (hundred.slope_mib_per_h, hundred.verdict) == (0, "no growth")
    assert hundred.high_mib_per_h == -hundred.low_mib_per_h == pytest.approx(13.3, rel=0.03)
    assert (ten.slope_mib_per_h, ten.verdict) == (0, "not settled")
    assert ten.high_mib_per_h == pytest.approx(133, rel=0.03)


def test_a_gap_that_grows_as_allocated_memory_falls_exhausts_nothing() -> None:
    falling = 30e9 - growing(1000, 300.0) * MIB
    result = trend([Series(np.arange(1000) * EVERY_S, np.full(1000, 38e9), falling)], USABLE, 0)
    assert result is not None
    assert (result.verdict, result.exhaustion_h) == ("grows", None)
    assert result.slope_mib_per_h == pytest.approx(300)


def test_growth_within_the_tolerance_exhausts_nothing() -> None:
    result = trend([series(growing(4000, 10.0))], USABLE, 0)
    assert result is not None
    assert (result.verdict, result.exhaustion_h) == ("no growth", None)
    assert result.low_mib_per_h > 0


def test_a_worker_that_died_before_its_first_sample_is_left_out() -> None:
    gap = np.full(1200, 700.0)
    assert trend([series(gap[:0]), series(gap, 60.0)], USABLE, 0) == trend(
        [series(gap, 60.0)], USABLE, 0
    )


def test_falling_memory_is_not_settled() -> None:
    result = trend([series(growing(400, -200.0))], USABLE, 0)
    assert result is not None
    assert (result.verdict, result.exhaustion_h) == ("not settled", None)


def test_too_few_samples_say_nothing() -> None:
    assert trend([series(growing(66, 100.0))], USABLE, 0) is None  # 59 after a tenth
    assert trend([], USABLE, 0) is None
    nothing = np.full(100, np.nan)
    assert trend([Series(np.arange(100.0), nothing, nothing)], USABLE, 0) is None


def test_warm_up_ends_when_memory_is_filled() -> None:
    allocated = np.concatenate([np.linspace(0, 1e9, 50), np.full(150, 1e9)])
    filling = Series(np.arange(200.0), allocated + 1e8, allocated)
    assert after_warm_up(filling).times_s[0] == 49  # where it first has its median
    filled = Series(np.arange(200.0), np.full(200, 2e9), np.full(200, 1e9))
    assert after_warm_up(filled).times_s[0] == 20  # the first tenth of 199 s


def test_the_same_seed_gives_the_same_interval() -> None:
    gap = growing(300, 50.0) + noise(stream(3, "test"), 300, 0.8)
    assert trend([series(gap)], USABLE, 7) == trend([series(gap)], USABLE, 7)
    assert trend([series(gap)], USABLE, 7) != trend([series(gap)], USABLE, 8)
