"""Rates that change with time: the arrivals against the rate's own formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import stats

from workloads.arrivals.base import Arrivals
from workloads.arrivals.diurnal import DiurnalArrivals
from workloads.arrivals.gamma import GammaArrivals
from workloads.arrivals.ramp import RampArrivals
from workloads.arrivals.spikes import SpikeArrivals
from workloads.arrivals.steps import StepArrivals
from workloads.base import WorkloadError

RATE_RPS = 50.0
QUIET_FIRST = [
    {"duration_s": 10.0, "share": 0},
    {"duration_s": 20, "share": 0.5},
    {"duration_s": 10, "share": 3.0},
]


class Case(NamedTuple):
    """A process with its settings, and the integral of its rate's share over time, by hand."""

    process: Callable[..., Arrivals]
    settings: dict[str, Any]
    integral: Callable[[np.ndarray], np.ndarray]

    def times_s(self, chunks: int = 24, **settings: Any) -> np.ndarray:
        arrivals = self.process(**self.settings, **settings)
        rng = np.random.default_rng(0)
        return np.concatenate(list(islice(arrivals.times_ns(rng, RATE_RPS), chunks))) / 1e9


def ramp(t: np.ndarray) -> np.ndarray:
    """The share is 0.5 + t / 400 up to 1.75 at 500 s, which stays."""
    rising = np.minimum(t, 500)
    return 0.5 * rising + rising**2 / 800 + 1.75 * (t - rising)


def wave(t: np.ndarray) -> np.ndarray:
    """The integral of 1 + 0.9 sin(2 pi (t / 100 + 0.3))."""
    angle = 2 * np.pi * (t / 100 + 0.3)
    return t - 0.9 * 100 / (2 * np.pi) * (np.cos(angle) - math.cos(2 * np.pi * 0.3))


def repeated(period_s: float, at_s: list[float], integral: list[float]) -> Any:
    """A whole period's integral so many times, and of the last one straight lines between
    points."""
    return lambda t: t // period_s * integral[-1] + np.interp(t % period_s, at_s, integral)


CASES = {
    "ramp": Case(RampArrivals, {"ramp_s": 500, "start_share": 0.5, "end_share": 1.75}, ramp),
    "diurnal": Case(DiurnalArrivals, {"period_s": 100, "amplitude": 0.9, "phase": 0.3}, wave),
    # 0 for 10 s, 0.5 for 20 s, 3 for 10 s
    "steps": Case(
        StepArrivals,
        {"steps": QUIET_FIRST, "repeat": True},
        repeated(40, [0, 10, 30, 40], [0, 0, 10, 40]),
    ),
    # a baseline of 30 / (30 + 9 * 3) for 27 s, then 10 times as much for 3 s
    "spikes": Case(
        SpikeArrivals,
        {"every_s": 30, "length_s": 3, "height": 10},
        repeated(30, [0, 27, 30], [0, 27 * 30 / 57, 30]),
    ),
}
each = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@each
def test_on_its_own_clock_a_process_is_poisson(case: Case) -> None:
    gaps = np.diff(case.integral(case.times_s())) * RATE_RPS
    assert stats.kstest(gaps, "expon").pvalue > 0.01
    on_the_wall = np.diff(case.times_s()) * RATE_RPS
    assert stats.kstest(on_the_wall, "expon").pvalue < 1e-6


@each
def test_burstiness_is_that_of_gamma_arrivals_on_that_clock(case: Case) -> None:
    gaps = np.diff(case.integral(case.times_s(burstiness=0.5))) * RATE_RPS
    assert stats.kstest(gaps, stats.gamma(0.5, scale=2).cdf).pvalue > 0.01


@each
def test_every_tenth_of_a_cycle_has_as_many_as_its_rate_says(case: Case) -> None:
    times_s = case.times_s()
    ends_s = np.arange(0, times_s[-1], 10)
    counts = np.histogram(times_s[1:], ends_s)[0]
    expected = np.diff(case.integral(ends_s)) * RATE_RPS
    # each count is Poisson: 5 deviations of it, of some 200 counts
    assert np.all(np.abs(counts - expected) <= 5 * np.sqrt(expected))


@pytest.mark.parametrize("name", ["diurnal", "spikes"])
def test_the_mean_over_whole_cycles_is_the_rate_asked_for(name: str) -> None:
    case = CASES[name]
    cycle_s = case.settings.get("period_s") or case.settings["every_s"]
    times_s = case.times_s()
    whole_s = times_s[-1] // cycle_s * cycle_s
    expected = RATE_RPS * whole_s
    assert (times_s < whole_s).sum() == pytest.approx(expected, abs=4 * math.sqrt(expected))


def test_nothing_but_the_first_request_comes_while_the_share_is_zero() -> None:
    times_s = CASES["steps"].times_s()
    assert times_s[0] == 0
    assert np.all(times_s[1:] % 40 >= 10)


def test_the_last_share_of_steps_stays() -> None:
    steps = [{"duration_s": 1e-3, "share": 1000}, {"duration_s": 5, "share": 0.25}]
    arrivals = StepArrivals(steps=steps)
    times = np.concatenate(list(islice(arrivals.times_ns(np.random.default_rng(0), 8.0), 30)))
    assert (len(times) - 1) / (times[-1] / 1e9) == pytest.approx(2, rel=4 / math.sqrt(len(times)))


def test_arrivals_of_a_share_of_one_are_those_of_gamma() -> None:
    one = StepArrivals(steps=[{"duration_s": 7, "share": 1}], repeat=True, burstiness=0.5)
    flat = DiurnalArrivals(period_s=86_400, amplitude=0, burstiness=0.5)
    other = GammaArrivals(burstiness=0.5)
    expected, *found = (
        np.concatenate(list(islice(each.times_ns(np.random.default_rng(0), 2e-4), 3)))
        for each in (other, one, flat)
    )
    assert expected[-1] > 2**53  # where floats no longer hold every nanosecond
    for times in found:
        assert np.abs(times - expected).max() <= 1


@pytest.mark.parametrize("rate_rps", [1e-4, 1e6])
@pytest.mark.parametrize(
    "arrivals",
    [
        StepArrivals(
            steps=[{"duration_s": 1e8, "share": 0}, {"duration_s": 1e-3, "share": 1e-3}],
            repeat=True,
        ),
        StepArrivals(steps=[{"duration_s": 1e-3, "share": 1e-3}]),
        DiurnalArrivals(period_s=1e-3, amplitude=1),
        DiurnalArrivals(period_s=1e8, amplitude=1, phase=0.75, burstiness=0.01),
        RampArrivals(ramp_s=1e-3, start_share=1000, end_share=1e-3),
        SpikeArrivals(every_s=2e-3, length_s=1e-3, height=10_000),
    ],
)
def test_extremes_neither_overflow_nor_go_back(arrivals: Arrivals, rate_rps: float) -> None:
    chunks = islice(arrivals.times_ns(np.random.default_rng(0), rate_rps), 4)
    times = np.concatenate(list(chunks))
    assert times[0] == 0
    assert np.diff(times).min() >= 0


def step(share: Any = 1.0, duration_s: Any = 5) -> dict[str, Any]:
    return {"duration_s": duration_s, "share": share}


@pytest.mark.parametrize(
    ("process", "settings", "message"),
    [
        (RampArrivals, {"ramp_s": 0}, r"ramp_s is 0; it must be a number from 0\.001 to 100,000,"),
        (RampArrivals, {"ramp_s": 1, "start_share": -1}, "start_share is -1; .* share of workload"),
        (RampArrivals, {"ramp_s": 1, "end_share": 0}, "end_share is 0; it must be a number from"),
        (RampArrivals, {"ramp_s": 1, "burstiness": 0}, "burstiness is 0; .*; 1 is Poisson"),
        (StepArrivals, {"steps": []}, r"steps is \[\]; it must be a list of at least one step"),
        (StepArrivals, {"steps": "fast"}, "steps is 'fast'"),
        (StepArrivals, {"steps": [step(), {"share": 1}]}, r"steps\[1\] is .*duration_s and share"),
        (StepArrivals, {"steps": [step(duration_s=None)]}, r"steps\[0\]\.duration_s is null"),
        (
            StepArrivals,
            {"steps": [step("1")]},
            r"steps\[0\]\.share is '1'; .* from 0\.001 to 1,000",
        ),
        (StepArrivals, {"steps": [step(), step(0)]}, "The last share in workload.* no request"),
        (
            StepArrivals,
            {"steps": [step(0)], "repeat": True},
            r"The largest share in workload\.arrivals\.steps is 0; it must be above 0",
        ),
        (StepArrivals, {"steps": [step()], "repeat": "no"}, "repeat is 'no'; .* true or false"),
        (DiurnalArrivals, {"period_s": "day", "amplitude": 0.5}, "period_s is 'day'"),
        (DiurnalArrivals, {"period_s": 60, "amplitude": 1.1}, "amplitude is 1.1; .* 0 to 1 "),
        (DiurnalArrivals, {"period_s": 60, "amplitude": 1, "phase": 6}, "phase is 6; .* 0 to 1 "),
        (
            SpikeArrivals,
            {"every_s": 60, "length_s": 60, "height": 5},
            r"length_s is 60; it must be a number from 0\.001 to 59\.94 seconds; a spike is",
        ),
        (SpikeArrivals, {"every_s": 60, "length_s": 6, "height": 0.5}, "height is 0.5; .* from 1"),
        (SpikeArrivals, {"every_s": True, "length_s": 6, "height": 5}, "every_s is True"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(
    process: Callable[..., Arrivals], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(WorkloadError, match=rf"workload\.arrivals\.{message}|^{message}"):
        process(**settings)
