from __future__ import annotations

import inspect
import math
from itertools import islice

import numpy as np
import pytest
from scipy import stats

from workloads.arrivals import base, constant
from workloads.arrivals.base import Arrivals
from workloads.arrivals.constant import ConstantArrivals
from workloads.arrivals.diurnal import DiurnalArrivals
from workloads.arrivals.gamma import GammaArrivals
from workloads.arrivals.poisson import PoissonArrivals
from workloads.arrivals.ramp import RampArrivals
from workloads.arrivals.spikes import SpikeArrivals
from workloads.arrivals.steps import StepArrivals
from workloads.base import WorkloadError

RATE_RPS = 8.0
STEADY: list[Arrivals] = [PoissonArrivals(), GammaArrivals(burstiness=0.5), ConstantArrivals()]
ALL: list[Arrivals] = [
    *STEADY,
    RampArrivals(ramp_s=600),
    StepArrivals(steps=[{"duration_s": 9, "share": 0.5}, {"duration_s": 7, "share": 2}]),
    DiurnalArrivals(period_s=1000, amplitude=0.7, burstiness=0.5),
    SpikeArrivals(every_s=60, length_s=5, height=9),
]
each = pytest.mark.parametrize("arrivals", ALL, ids=lambda process: type(process).__name__)
each_steady = pytest.mark.parametrize("arrivals", STEADY, ids=lambda each: type(each).__name__)


def times_ns(arrivals: Arrivals, chunks: int = 40, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate(list(islice(arrivals.times_ns(rng, RATE_RPS), chunks)))


@each
def test_the_first_request_is_at_zero_and_time_never_goes_back(arrivals: Arrivals) -> None:
    times = times_ns(arrivals)
    assert times.dtype == np.int64
    assert times[0] == 0
    assert np.diff(times).min() >= 0


@each
def test_the_size_of_chunks_moves_no_arrival(
    arrivals: Arrivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = times_ns(arrivals, chunks=3)
    monkeypatch.setattr(base, "CHUNK", 7)
    monkeypatch.setattr(constant, "CHUNK", 7)
    after = times_ns(arrivals, chunks=500)
    assert len(after) > 3000
    assert np.array_equal(after, before[: len(after)])


@each
def test_arguments_are_by_keyword_only(arrivals: Arrivals) -> None:
    parameters = list(inspect.signature(type(arrivals)).parameters.values())
    assert {parameter.kind for parameter in parameters} <= {inspect.Parameter.KEYWORD_ONLY}


@each_steady
def test_the_mean_rate_is_the_one_asked_for(arrivals: Arrivals) -> None:
    times = times_ns(arrivals)
    # the relative error of the mean of n gaps is cv / sqrt(n), cv at most sqrt(2); 4 of them
    tolerance = 4 * math.sqrt(2 / len(times))
    assert (len(times) - 1) / (times[-1] / 1e9) == pytest.approx(RATE_RPS, rel=tolerance)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_vary_by_one_over_the_root_of_burstiness(burstiness: float) -> None:
    gaps = np.diff(times_ns(GammaArrivals(burstiness=burstiness)))
    assert gaps.std() / gaps.mean() == pytest.approx(1 / math.sqrt(burstiness), rel=0.03)


@pytest.mark.parametrize(
    ("arrivals", "law"),
    [
        (PoissonArrivals(), stats.expon(scale=1 / RATE_RPS)),
        *(
            (GammaArrivals(burstiness=shape), stats.gamma(shape, scale=1 / (RATE_RPS * shape)))
            for shape in (0.5, 4.0)  # at 0.25, rounding makes 0 ns of 0.6 % of gaps
        ),
    ],
)
def test_gaps_have_the_law_that_is_stated(arrivals: Arrivals, law: stats.rv_continuous) -> None:
    gaps_s = np.diff(times_ns(arrivals)) / 1e9
    # Kolmogorov and Smirnov: of 160,000 gaps, a distribution function 0.005 off would be refused
    assert stats.kstest(gaps_s, law.cdf).pvalue > 0.01
    assert stats.kstest(gaps_s * 1.02, law.cdf).pvalue < 0.01


@pytest.mark.parametrize("arrivals", [PoissonArrivals(), GammaArrivals(burstiness=0.25)])
def test_gaps_do_not_depend_on_the_one_before(arrivals: Arrivals) -> None:
    gaps = np.diff(times_ns(arrivals))
    # the rank correlation of n independent pairs has deviation 1 / sqrt(n); 4 of them
    found = stats.spearmanr(gaps[:-1], gaps[1:]).statistic
    assert abs(found) < 4 / math.sqrt(len(gaps))


def test_gamma_of_burstiness_one_is_poisson_to_the_last_nanosecond() -> None:
    assert np.array_equal(times_ns(GammaArrivals(burstiness=1)), times_ns(PoissonArrivals()))


def test_constant_arrivals_do_not_drift() -> None:
    times = times_ns(ConstantArrivals(), chunks=3)
    assert times.tolist() == [n * 125_000_000 for n in range(len(times))]


@pytest.mark.parametrize("burstiness", [0, -1, True, "1", None, 1e9])
def test_a_burstiness_that_cannot_be_used_is_named(burstiness: object) -> None:
    with pytest.raises(WorkloadError, match=r"^workload\.arrivals\.burstiness is"):
        GammaArrivals(burstiness=burstiness)  # type: ignore[arg-type]
