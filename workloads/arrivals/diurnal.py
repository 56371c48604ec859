"""Days: the rate rises and falls, over and over."""

from __future__ import annotations

import numpy as np

from workloads.arrivals.modulated import SMOOTH_STEPS, ModulatedArrivals, check_span_s
from workloads.settings import number


class DiurnalArrivals(ModulatedArrivals):
    """The rate at t is rate_rps x (1 + amplitude x sin(2 pi (t / period_s + phase))): its mean over
    a whole period is `workload.rate_rps`. The sine is taken in 4,096 steps a period.

    `phase` is the share of a period that is over at 0 s: 0 starts at the mean and rises, 0.25 at
    the highest rate, 0.75 at the lowest. `burstiness` is that of gamma arrivals; 1 is Poisson.
    """

    def __init__(
        self, *, period_s: float, amplitude: float, phase: float = 0.0, burstiness: float = 1.0
    ) -> None:
        span_s = check_span_s("period_s", period_s, 0.001, "86400 is a day")
        name, fix = "workload.arrivals.amplitude", "0.5 makes the highest rate 3 times the lowest"
        height = number(name, amplitude, 0, 1, "(a share of workload.rate_rps)", fix)
        name, fix = "workload.arrivals.phase", "0.75 starts at the lowest rate"
        start = number(name, phase, 0, 1, "(a share of a period)", fix)
        middles = (np.arange(SMOOTH_STEPS) + 0.5) / SMOOTH_STEPS + start
        super().__init__(
            durations_s=[span_s / SMOOTH_STEPS] * SMOOTH_STEPS,
            shares=np.round(1 + height * np.sin(2 * np.pi * middles), 9).tolist(),
            repeat=True,
            burstiness=burstiness,
        )
