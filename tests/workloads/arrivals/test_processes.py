from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest

from workloads.arrivals.base import Arrivals
from workloads.arrivals.constant import ConstantArrivals
from workloads.arrivals.gamma import GammaArrivals
from workloads.arrivals.poisson import PoissonArrivals
from workloads.base import WorkloadError

RATE_RPS = 8.0
ALL: list[Arrivals] = [PoissonArrivals(), GammaArrivals(burstiness=0.5), ConstantArrivals()]
each = pytest.mark.parametrize("arrivals", ALL, ids=lambda process: type(process).__name__)


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
def test_the_mean_rate_is_the_one_asked_for(arrivals: Arrivals) -> None:
    times = times_ns(arrivals)
    # the relative error of the mean of n gaps is cv / sqrt(n), cv at most sqrt(2); 4 of them
    tolerance = 4 * math.sqrt(2 / len(times))
    assert (len(times) - 1) / (times[-1] / 1e9) == pytest.approx(RATE_RPS, rel=tolerance)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_vary_by_one_over_the_root_of_burstiness(burstiness: float) -> None:
    gaps = np.diff(times_ns(GammaArrivals(burstiness=burstiness)))
    assert gaps.std() / gaps.mean() == pytest.approx(1 / math.sqrt(burstiness), rel=0.03)


def test_gamma_of_burstiness_one_is_poisson_to_the_last_nanosecond() -> None:
    assert np.array_equal(times_ns(GammaArrivals(burstiness=1)), times_ns(PoissonArrivals()))


def test_constant_arrivals_do_not_drift() -> None:
    times = times_ns(ConstantArrivals(), chunks=3)
    assert times.tolist() == [n * 125_000_000 for n in range(len(times))]


@pytest.mark.parametrize("burstiness", [0, -1, True, "1", None, 1e9])
def test_a_burstiness_that_cannot_be_used_is_named(burstiness: object) -> None:
    with pytest.raises(WorkloadError, match=r"^workload\.arrivals\.burstiness is"):
        GammaArrivals(burstiness=burstiness)  # type: ignore[arg-type]
