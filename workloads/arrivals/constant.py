"""Constant arrivals: one request every 1 / rate seconds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals.base import CHUNK, NS_PER_S


class ConstantArrivals:
    """Request n at n / rate seconds, to the nearest nanosecond: roundings do not add up."""

    own_rate_rps: float | None = None

    def times_ns(self, rng: np.random.Generator, rate_rps: float) -> Iterator[NDArray[np.int64]]:
        first = 0
        while True:
            numbers = np.arange(first, first + CHUNK)
            yield np.rint(numbers * (NS_PER_S / rate_rps)).astype(np.int64)
            first += CHUNK
