"""How traffic is spread over time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bench.traffic.sample import Floats

WINDOW_S, MINUTE_S = 10.0, 60.0
LEAST_GAPS, LEAST_WINDOWS = 30, 10
"""Below them chance alone makes a cv or a peak."""


class Windows(NamedTuple):
    """Sums over windows of `width_s`, the first at 0 s, all of them whole."""

    width_s: float
    sums: Floats


def windows(times_s: Floats, width_s: float, weights: Floats | None = None) -> Windows:
    """Requests, or `weights`, in each whole window up to the last time."""
    number = int(times_s.max() // width_s) if len(times_s) else 0
    inside = times_s < number * width_s
    places = (times_s[inside] // width_s).astype(np.int64)
    chosen = None if weights is None else weights[inside]
    return Windows(width_s, np.bincount(places, chosen, minlength=number).astype(np.float64))


def gap_cv(times_s: Floats) -> float | None:
    """Standard deviation / mean of the gaps between times in order: 1 for Poisson, above it
    burstier; None below 30 gaps, or where all are 0."""
    gaps = np.diff(np.sort(times_s))
    if len(gaps) < LEAST_GAPS or not gaps.any():
        return None
    return float(gaps.std() / gaps.mean())


def peak_to_mean(times_s: Floats, width_s: float = WINDOW_S) -> float | None:
    """The busiest window's requests / the mean window's; None below 10 windows."""
    sums = windows(times_s, width_s).sums
    return float(sums.max() / sums.mean()) if len(sums) >= LEAST_WINDOWS else None
