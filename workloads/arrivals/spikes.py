"""Spikes: a steady rate, and every so often a multiple of it for a short while."""

from __future__ import annotations

from workloads.arrivals.modulated import ModulatedArrivals, check_span_s
from workloads.settings import number


class SpikeArrivals(ModulatedArrivals):
    """In the last `length_s` of each `every_s` the rate is `height` times the baseline. The
    baseline is such that the mean over `every_s` is `workload.rate_rps`: rate_rps x every_s /
    (every_s + (height - 1) x length_s).

    `burstiness` is that of gamma arrivals; 1 is Poisson.
    """

    def __init__(
        self, *, every_s: float, length_s: float, height: float, burstiness: float = 1.0
    ) -> None:
        cycle_s = check_span_s("every_s", every_s, 0.002, "it is from one spike to the next")
        name, fix = (
            "workload.arrivals.length_s",
            "a spike is shorter than workload.arrivals.every_s",
        )
        spike_s = number(name, length_s, 0.001, 0.999 * cycle_s, "seconds", fix)
        name, unit = "workload.arrivals.height", "(times the baseline)"
        times = number(name, height, 1, 10_000, unit, "5 is a spike of five times the baseline")
        baseline = cycle_s / (cycle_s + (times - 1) * spike_s)
        super().__init__(
            durations_s=[cycle_s - spike_s, spike_s],
            shares=[baseline, times * baseline],
            repeat=True,
            burstiness=burstiness,
        )
