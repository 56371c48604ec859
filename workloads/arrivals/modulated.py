"""Arrivals at a mean rate that changes with time: what ramps, steps, days and spikes share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals.base import NS_PER_S
from workloads.arrivals.gamma import GammaArrivals
from workloads.settings import MAX_DURATION_S, number

SMOOTH_STEPS = 4096
"""Steps that stand for a curve. Sines and roots are rounded once, in the steps: a machine whose
sine differs in the last digit gives the same arrivals."""
_FOREVER_NS = 1 << 62


class ModulatedArrivals:
    """Arrivals at the rate share(t) x `rate_rps`, where the share is constant in each of some
    steps; after the last one they start again, or the last share stays.

    By a change of clock: gamma arrivals of a constant rate (Poisson where `burstiness` is 1) happen
    on a clock that runs share(t) times as fast as time, so that one at s on the clock comes when
    the integral of the share reaches s. Poisson arrivals become those of the inhomogeneous Poisson
    process. The first request is at 0 s, whatever the rate is there.
    """

    own_rate_rps: float | None = None

    def __init__(
        self,
        *,
        durations_s: Sequence[float],
        shares: Sequence[float],
        repeat: bool,
        burstiness: float,
    ) -> None:
        self._unmodulated = GammaArrivals(burstiness=burstiness)
        self._repeat = repeat
        ends_ns = np.rint(np.cumsum(durations_s) * NS_PER_S)
        self._starts_ns = np.concatenate(([0.0], ends_ns[:-1]))
        self._shares = np.asarray(shares, dtype=np.float64)
        ends_clock = np.cumsum((ends_ns - self._starts_ns) * self._shares)
        self._starts_clock, self._ends_clock = np.concatenate(([0.0], ends_clock[:-1])), ends_clock
        self._cycle_ns, self._cycle_clock = int(ends_ns[-1]), round(ends_clock[-1])

    def times_ns(self, rng: np.random.Generator, rate_rps: float) -> Iterator[NDArray[np.int64]]:
        for clock in self._unmodulated.times_ns(rng, rate_rps):
            yield self._times_at(clock)

    def _times_at(self, clock: NDArray[np.int64]) -> NDArray[np.int64]:
        """When the clock, in ns, shows each of `clock`: the earliest such time."""
        if not self._repeat:
            return _whole(self._times_in_cycle(clock))
        cycles, rest = np.divmod(clock, self._cycle_clock)
        times_ns = self._times_in_cycle(rest)
        in_time = cycles * float(self._cycle_ns) + times_ns < _FOREVER_NS
        return np.where(in_time, cycles * self._cycle_ns + _whole(times_ns), _FOREVER_NS)

    def _times_in_cycle(self, clock: NDArray[np.int64]) -> NDArray[np.float64]:
        last = len(self._shares) - 1
        step = np.minimum(np.searchsorted(self._ends_clock, clock), last)
        gone = clock - self._starts_clock[step]
        shares = self._shares[step]
        # Where the share is 0 the clock stands still: it shows 0 there, and only at the start.
        waited = np.divide(gone, shares, out=np.zeros_like(gone), where=shares > 0)
        return self._starts_ns[step] + waited


def _whole(times_ns: NDArray[np.float64]) -> NDArray[np.int64]:
    """Rounded; a time that 64 bits do not hold is put beyond the longest duration there is."""
    return np.rint(np.minimum(times_ns, _FOREVER_NS)).astype(np.int64)


def check_span_s(name: str, value: object, least: float, fix: str) -> float:
    """A span of time of `workload.arrivals`. Raises WorkloadError."""
    return number(f"workload.arrivals.{name}", value, least, MAX_DURATION_S, "seconds", fix)
