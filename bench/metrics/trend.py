"""Does reserved - allocated grow? A robust slope with an interval, and what it says.

Slope: Theil-Sen (Sen 1968), the median of the slopes between all pairs of points of one segment;
a segment ends where a worker was restarted, and no pair crosses that. Points are means of equal
runs of samples, at most MOST_POINTS in all: their noise is less correlated than that of samples.

Interval: 95 %, from a moving-block bootstrap (Kuensch 1989) of the residuals. They are whitened by
an AR(1) fit before blocks of them are drawn, and coloured again after (Davison and Hinkley 1997,
section 8.2.3): with blocks alone an interval of so few correlated points is too narrow. A block is
as long as the autocorrelation time; Student's t stands for how few such times there are. Reserved
memory comes in segments of the allocator, and growth by less than one may show in no sample: either
way the interval is at least as wide as one over the longest time without a restart.

Warm-up, which is left out: the first tenth of a segment, and all before allocated memory first
reached its median over the segment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workloads.streams import stream

MIB = 1 << 20
S_PER_H = 3600.0
TOLERANCE_A_DAY = 0.01
"""Of usable memory: an interval wholly within plus or minus so much a day is "no growth"."""
WARM_UP_SHARE = 0.1
LEAST_SAMPLES = 60
"""After warm-up, in all segments; fewer say nothing. A segment counts from a third of it on."""
MOST_POINTS = 64
RESAMPLES = 999
SEGMENT_MIB = 20.0
"""What the caching allocator takes at once for a request of 1 to 10 MiB (kLargeBuffer)."""
MOST_CORRELATION = 0.95
"""Between neighbouring points. More cannot be told from a trend in so few."""
_Z = 1.959964  # of the normal distribution, at 97.5 %

Floats = NDArray[np.float64]
Verdict = Literal["grows", "no growth", "not settled"]


class Series(NamedTuple):
    """Samples of one segment, of one shape (n,): seconds, ascending, and bytes."""

    times_s: Floats
    reserved_bytes: Floats
    allocated_bytes: Floats


@dataclass(frozen=True, slots=True)
class Trend:
    """`slope_mib_per_h` with its 95 % interval from `low` to `high`.

    grows: the interval lies above 0. no growth: it lies within `tolerance_mib_per_h` of 0, whatever
    else it says. not settled: neither, so also where memory falls. `exhaustion_h`: until reserved
    memory meets the card's, at its own slope; None unless both grow. `warm_up_s` is of the first
    segment that counts.
    """

    verdict: Verdict
    slope_mib_per_h: float
    low_mib_per_h: float
    high_mib_per_h: float
    tolerance_mib_per_h: float
    exhaustion_h: float | None
    segments: int
    samples: int
    warm_up_s: float

    def plain(self) -> dict[str, Any]:
        """For a summary."""
        return asdict(self)


def trend(segments: Sequence[Series], usable_bytes: int, seed: int) -> Trend | None:
    """Of reserved - allocated over a run's segments, whose times are on one axis; None where
    there are too few samples, or no allocator."""
    known = [each for each in segments if _is_enough(after_warm_up(each))]
    settled = [after_warm_up(each) for each in known]
    samples = sum(len(each.times_s) for each in settled)
    if samples < LEAST_SAMPLES:
        return None
    points = [_points(each, max(3, MOST_POINTS * len(each.times_s) // samples)) for each in settled]
    pairs = _pairs(points)
    low, slope, high = _interval(points, pairs, stream(seed, "trend"))
    tolerance = TOLERANCE_A_DAY * usable_bytes / MIB / 24
    verdict = _verdict(low, high, tolerance)
    left_mib = max(usable_bytes - float(settled[-1].reserved_bytes[-1]), 0.0) / MIB
    reserved = float(pairs.slopes(np.concatenate([each.reserved_mib for each in points])))
    return Trend(
        verdict=verdict,
        slope_mib_per_h=slope,
        low_mib_per_h=low,
        high_mib_per_h=high,
        tolerance_mib_per_h=tolerance,
        exhaustion_h=left_mib / reserved if verdict == "grows" and reserved > 0 else None,
        segments=len(settled),
        samples=samples,
        warm_up_s=float(settled[0].times_s[0] - known[0].times_s[0]),
    )


def _verdict(low: float, high: float, tolerance: float) -> Verdict:
    if -tolerance <= low and high <= tolerance:
        return "no growth"
    return "grows" if low > 0 else "not settled"


def after_warm_up(segment: Series) -> Series:
    """A segment without its warm-up, and without samples of no allocator."""
    known = np.isfinite(segment.reserved_bytes) & np.isfinite(segment.allocated_bytes)
    times_s, reserved, allocated = (column[known] for column in segment)
    if not len(times_s):
        return Series(times_s, reserved, allocated)
    tenth_s = times_s[0] + WARM_UP_SHARE * (times_s[-1] - times_s[0])
    filled = int(np.argmax(allocated >= np.median(allocated)))
    first = max(int(np.searchsorted(times_s, tenth_s)), filled)
    return Series(times_s[first:], reserved[first:], allocated[first:])


def _is_enough(segment: Series) -> bool:
    return len(segment.times_s) >= LEAST_SAMPLES // 3


class _Points(NamedTuple):
    """Means of runs of a segment's samples: hours and MiB."""

    hours: Floats
    reserved_mib: Floats
    gap_mib: Floats


def _points(segment: Series, most: int) -> _Points:
    count = min(most, len(segment.times_s))
    first = np.linspace(0, len(segment.times_s), count, endpoint=False).astype(int)
    samples = np.diff(np.append(first, len(segment.times_s)))
    gap_bytes = segment.reserved_bytes - segment.allocated_bytes
    columns = (segment.times_s / S_PER_H, segment.reserved_bytes / MIB, gap_bytes / MIB)
    return _Points(*(np.add.reduceat(column, first) / samples for column in columns))


class _Pairs(NamedTuple):
    """All pairs of points of one segment: their places among the points of all, and how many hours
    lie between."""

    earlier: NDArray[np.int64]
    later: NDArray[np.int64]
    hours: Floats

    def slopes(self, values_mib: Floats) -> Any:
        """The median slope, over the last axis, of one or many series."""
        rises = values_mib[..., self.later] - values_mib[..., self.earlier]
        return np.median(rises / self.hours, axis=-1)


def _pairs(segments: Sequence[_Points]) -> _Pairs:
    earlier, later, place = [], [], 0
    for segment in segments:
        first, second = np.triu_indices(len(segment.hours), 1)
        earlier.append(first + place)
        later.append(second + place)
        place += len(segment.hours)
    i, j = np.concatenate(earlier), np.concatenate(later)
    hours = np.concatenate([segment.hours for segment in segments])
    return _Pairs(i, j, hours[j] - hours[i])


def _interval(
    segments: Sequence[_Points], pairs: _Pairs, rng: np.random.Generator
) -> tuple[float, float, float]:
    """The slope in MiB an hour between the ends of its interval."""
    slope = float(pairs.slopes(np.concatenate([segment.gap_mib for segment in segments])))
    residuals = [_centred(segment.gap_mib - slope * segment.hours) for segment in segments]
    count = sum(map(len, residuals))
    correlation = _correlation(residuals, count)
    time = (1 + correlation) / (1 - correlation)  # between independent points, of an AR(1)
    again = pairs.slopes(_resampled(residuals, correlation, math.ceil(time), rng))
    noise = _student(max(count / time - 2, 2.0)) * float(again.std())
    half = max(noise, SEGMENT_MIB / max(float(np.ptp(each.hours)) for each in segments))
    return slope - half, slope, slope + half


def _centred(values: Floats) -> Floats:
    centred: Floats = values - values.mean()
    return centred


def _correlation(residuals: Sequence[Floats], count: int) -> float:
    """Of neighbours within a segment, corrected for what a fitted line takes of it (Kendall 1954:
    about (2 + 4 rho) / n); 0 where there is none."""
    squares = sum(float(np.dot(each, each)) for each in residuals)
    if squares == 0:
        return 0.0
    found = sum(float(np.dot(each[1:], each[:-1])) for each in residuals) / squares
    return min(max((count * found + 2) / (count - 4), 0.0), MOST_CORRELATION)


def _resampled(
    residuals: Sequence[Floats], correlation: float, block: int, rng: np.random.Generator
) -> Floats:
    """RESAMPLES series of noise like the residuals, of shape (RESAMPLES, points of all)."""
    white = [each[1:] - correlation * each[:-1] for each in residuals]
    pool = _centred(np.concatenate(white))
    pool *= math.sqrt(len(pool) / max(len(pool) - len(residuals) - 2, 1))  # a line was fitted
    block = min(block, max(min(map(len, white)) // 4, 1))
    places = np.cumsum([0, *map(len, white)])
    starts = np.concatenate([np.arange(a, b - block + 1) for a, b in pairwise(places)])
    series = [_coloured(len(each), correlation, pool, starts, block, rng) for each in residuals]
    return np.concatenate(series, axis=1)


def _coloured(
    count: int,
    correlation: float,
    pool: Floats,
    starts: NDArray[np.int64],
    block: int,
    rng: np.random.Generator,
) -> Floats:
    """`count` points of RESAMPLES AR(1) series, driven by blocks of the pool; as many more come
    before them, for a start to be forgotten."""
    blocks = -(-2 * count // block)
    drawn = rng.choice(starts, (RESAMPLES, blocks))
    driven = pool[(drawn[..., None] + np.arange(block)).reshape(RESAMPLES, -1)]
    for place in range(1, driven.shape[1]):
        driven[:, place] += correlation * driven[:, place - 1]
    last: Floats = driven[:, -count:]
    return last


def _student(freedom: float) -> float:
    """Student's t at 97.5 %, within 4 % from 2 degrees of freedom up (Abramowitz and Stegun,
    26.7.5)."""
    z, v = _Z, freedom
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )
