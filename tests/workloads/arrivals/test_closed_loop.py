from __future__ import annotations

import inspect
import math
from itertools import islice
from typing import Any

import numpy as np
import pytest

from workloads.arrivals.closed_loop import ClosedLoopArrivals
from workloads.arrivals.poisson import PoissonArrivals
from workloads.base import ClosedLoop, Request, WorkloadError
from workloads.generated import GeneratedWorkload
from workloads.kinds.single import SingleTurn
from workloads.lengths.gamma import GammaLengths

LENGTHS = GammaLengths(mean_tokens=300, cv=1, max_tokens=2000)


def make(**changed: Any) -> GeneratedWorkload:
    loop = {"users": 8, **{name: changed.pop(name) for name in list(changed) if name in LOOP}}
    settings: dict[str, Any] = {
        "kinds": {"one": SingleTurn(prompt=LENGTHS, output=LENGTHS)},
        "arrivals": ClosedLoopArrivals(**loop),
        "num_requests": 5000,
    }
    return GeneratedWorkload(**settings | changed)


LOOP = set(inspect.signature(ClosedLoopArrivals.__init__).parameters) - {"self"}


def draw(**changed: Any) -> list[Request]:
    return list(make(**changed).requests(0))


def test_requests_have_pauses_of_the_mean_and_spread_asked_for() -> None:
    pauses = np.array([each.scheduled_s for each in draw(pause_s=4.0, pause_cv=0.5)])
    assert len(pauses) == 5000
    # gamma of mean 4 and deviation 2: 4 standard errors
    assert pauses.mean() == pytest.approx(4, abs=4 * 2 / math.sqrt(5000))
    assert pauses.std() == pytest.approx(2, rel=0.05)
    assert {each.scheduled_s for each in draw(pause_s=4.0, pause_cv=0)} == {4.0}
    assert {each.scheduled_s for each in draw()} == {0.0}


def test_contents_are_those_of_an_open_loop() -> None:
    open_loop = draw(arrivals=PoissonArrivals(), rate_rps=3.0)
    for one, other in zip(open_loop, draw(pause_s=1.0), strict=True):
        assert (one.prompt_tokens, one.output_tokens) == (other.prompt_tokens, other.output_tokens)


def test_a_workload_says_how_its_loop_is_closed() -> None:
    assert make(stagger_s=0.5, duration_s=60.0).closed_loop == ClosedLoop(8, 0.5, 60.0)
    assert make().closed_loop == ClosedLoop(8, 0.01, math.inf)
    assert make(arrivals=PoissonArrivals(), rate_rps=1.0).closed_loop is None


def test_a_duration_bounds_starts_and_not_the_draws() -> None:
    endless = make(num_requests=None, duration_s=1.0, pause_s=10.0).requests(0)
    assert len(list(islice(endless, 10_000))) == 10_000


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"users": 0}, r"^workload\.arrivals\.users is 0; .* from 1 to 100,000 users"),
        ({"pause_s": -1}, r"^workload\.arrivals\.pause_s is -1"),
        ({"pause_cv": 11}, r"^workload\.arrivals\.pause_cv is 11"),
        ({"stagger_s": None}, r"^workload\.arrivals\.stagger_s is null"),
        ({"rate_rps": -1}, r"^workload\.rate_rps is -1"),
        ({"num_requests": None}, r"^workload\.duration_s is null"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        make(**changed)
