"""Gamma arrivals: traffic that is burstier or smoother than Poisson."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals.base import accumulate_gaps
from workloads.settings import number


class GammaArrivals:
    """Gamma gaps of shape `burstiness`: mean 1 / rate, cv 1 / sqrt(burstiness).

    The word and its sense are vLLM's (`vllm bench serve --burstiness`): below 1 burstier than
    Poisson, 1 Poisson itself, above 1 smoother.
    """

    own_rate_rps: float | None = None

    def __init__(self, *, burstiness: float) -> None:
        fix = "1 is Poisson, 0.5 burstier, 2 smoother"
        name = "workload.arrivals.burstiness"
        self._burstiness = number(name, burstiness, 0.01, 1000, "(a shape, no unit)", fix)

    def times_ns(self, rng: np.random.Generator, rate_rps: float) -> Iterator[NDArray[np.int64]]:
        shape = self._burstiness
        return accumulate_gaps(rate_rps, lambda size: rng.standard_gamma(shape, size) / shape)
