"""Poisson arrivals: independent users, the usual first model of traffic."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals.base import accumulate_gaps


class PoissonArrivals:
    """Exponential gaps: mean 1 / rate, cv 1."""

    own_rate_rps: float | None = None

    def times_ns(self, rng: np.random.Generator, rate_rps: float) -> Iterator[NDArray[np.int64]]:
        return accumulate_gaps(rate_rps, rng.standard_exponential)
