"""A ramp: the rate goes up, or down, and stays."""

from __future__ import annotations

import numpy as np

from workloads.arrivals.modulated import SMOOTH_STEPS, ModulatedArrivals, check_span_s
from workloads.settings import number


class RampArrivals(ModulatedArrivals):
    """The rate goes in a straight line from `start_share` x rate_rps at 0 s to `end_share` x
    rate_rps at `ramp_s`, and stays there: with an `end_share` of 1, `workload.rate_rps` is the rate
    after the ramp. The line is taken in 4,096 steps.

    `burstiness` is that of gamma arrivals; 1 is Poisson.
    """

    def __init__(
        self,
        *,
        ramp_s: float,
        start_share: float = 0.0,
        end_share: float = 1.0,
        burstiness: float = 1.0,
    ) -> None:
        span_s = check_span_s("ramp_s", ramp_s, 0.001, "it is how long the rate changes")
        unit = "(a share of workload.rate_rps)"
        name, fix = "workload.arrivals.start_share", "0 starts without traffic"
        start = number(name, start_share, 0, 1000, unit, fix)
        name, fix = "workload.arrivals.end_share", "1 ends at workload.rate_rps"
        end = number(name, end_share, 0.001, 1000, unit, fix)
        middles = (np.arange(SMOOTH_STEPS) + 0.5) / SMOOTH_STEPS
        super().__init__(
            durations_s=[*[span_s / SMOOTH_STEPS] * SMOOTH_STEPS, span_s],
            shares=[*(start + (end - start) * middles), end],
            repeat=False,
            burstiness=burstiness,
        )
