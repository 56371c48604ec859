"""How requests are spread over time, by hand."""

from __future__ import annotations

import numpy as np

from bench.traffic.rates import gap_cv, peak_to_mean, windows


def test_windows_are_whole() -> None:
    times_s = np.array([0.0, 1.0, 9.9, 10.0, 20.0, 24.0])
    # the window from 20 s is not over at 24 s
    assert windows(times_s, 10.0).sums.tolist() == [3, 1]
    assert windows(times_s, 10.0, np.array([5.0, 1, 1, 7, 1, 1])).sums.tolist() == [7, 7]


def test_a_time_shorter_than_a_window_has_none() -> None:
    assert windows(np.array([0.0, 3.0]), 10.0).sums.tolist() == []
    assert peak_to_mean(np.array([0.0, 3.0])) is None


def test_the_cv_of_gaps_is_standard_deviation_over_mean() -> None:
    # Gaps of 0 and 2 in turn have mean 1 and standard deviation 1.
    pairs = np.repeat(2.0 * np.arange(20), 2)
    assert gap_cv(pairs[1:]) == 1.0
    assert gap_cv(np.arange(31.0)) == 0.0
    assert gap_cv(np.arange(30.0)) is None  # 29 gaps
    assert gap_cv(np.zeros(100)) is None


def test_the_peak_is_the_busiest_window() -> None:
    # One a second for 100 s, and 10 more in the third window: 20 of a mean of 11.
    times_s = np.sort(np.concatenate([np.arange(101.0), np.full(10, 25.0)]))
    assert peak_to_mean(times_s) == 20 / 11
