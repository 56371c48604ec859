"""What a seed gives in another process and on another machine, and what one part of a workload
leaves alone of another."""

from __future__ import annotations

import hashlib
import random
from itertools import islice

import numpy as np
import pytest

from tests.workloads.other_process import said_elsewhere
from workloads.arrivals.base import Arrivals
from workloads.arrivals.constant import ConstantArrivals
from workloads.arrivals.diurnal import DiurnalArrivals
from workloads.arrivals.gamma import GammaArrivals
from workloads.arrivals.poisson import PoissonArrivals
from workloads.arrivals.ramp import RampArrivals
from workloads.arrivals.spikes import SpikeArrivals
from workloads.arrivals.steps import StepArrivals
from workloads.base import Request
from workloads.generated import GeneratedWorkload
from workloads.kinds.single import SingleTurn
from workloads.lengths.base import Lengths
from workloads.lengths.fixed import FixedLength
from workloads.lengths.gamma import GammaLengths
from workloads.lengths.zipf import ZipfLengths
from workloads.streams import stream

EACH: list[Arrivals] = [
    PoissonArrivals(),
    GammaArrivals(burstiness=0.5),
    ConstantArrivals(),
    RampArrivals(ramp_s=600),
    StepArrivals(steps=[{"duration_s": 9, "share": 0.5}, {"duration_s": 7, "share": 1.5}]),
    DiurnalArrivals(period_s=1000, amplitude=0.5),
    SpikeArrivals(every_s=60, length_s=5, height=9, burstiness=0.5),
]
each = pytest.mark.parametrize("arrivals", EACH, ids=lambda process: type(process).__name__)
LENGTHS = GammaLengths(mean_tokens=300, cv=1, max_tokens=4000)


def digests(seed: int = 0) -> dict[str, str]:
    """The start of a hash of the first 8,000 or so arrivals of each process, in ns."""
    found = {}
    for arrivals in EACH:
        chunks = islice(arrivals.times_ns(stream(seed, "arrivals"), 8.0), 3)
        times = np.concatenate(list(chunks)).tolist()
        found[type(arrivals).__name__] = hashlib.sha256(repr(times).encode()).hexdigest()[:12]
    return found


def requests(arrivals: Arrivals, prompt: Lengths = LENGTHS, seed: int = 0) -> list[Request]:
    workload = GeneratedWorkload(
        kinds={"one": SingleTurn(prompt=prompt, output=LENGTHS)},
        arrivals=arrivals,
        rate_rps=8.0,
        num_requests=500,
    )
    return list(workload.requests(seed))


def test_a_seed_gives_the_same_arrivals_in_other_processes() -> None:
    others = [said_elsewhere(__file__, "digests()", hash_seed) for hash_seed in (1, 2)]
    assert others == [str(digests())] * 2


def test_a_seed_gives_these_arrivals_on_every_machine() -> None:
    # Recorded, not derived: a change of numpy's streams, or of ours, must not pass unseen.
    assert digests() == {
        "PoissonArrivals": "6863ee056f8c",
        "GammaArrivals": "23af2f3fd6c0",
        "ConstantArrivals": "63893b875a95",
        "RampArrivals": "f4e7a1e95c5a",
        "StepArrivals": "f872a9e0e7ff",
        "DiurnalArrivals": "41373a232e08",
        "SpikeArrivals": "1616ec27cc99",
    }


def test_seeds_differ_and_zero_is_one_of_them() -> None:
    zero, one = digests(0), digests(1)
    assert zero == digests(0)
    assert {name for name in zero if zero[name] == one[name]} == {"ConstantArrivals"}


def test_drawing_leaves_global_randomness_alone() -> None:
    before = repr(np.random.get_state()), random.getstate()
    digests()
    assert (repr(np.random.get_state()), random.getstate()) == before


@each
def test_arrivals_leave_lengths_alone(arrivals: Arrivals) -> None:
    one, other = requests(arrivals), requests(ConstantArrivals())
    for lengths in ("prompt_tokens", "output_tokens"):
        found, expected = ([getattr(each, lengths) for each in some] for some in (one, other))
        assert found == expected


@each
def test_lengths_leave_arrivals_and_other_lengths_alone(arrivals: Arrivals) -> None:
    one = requests(arrivals)
    for prompt in (FixedLength(tokens=7), ZipfLengths(exponent=1, max_tokens=99)):
        other = requests(arrivals, prompt)
        assert [each.scheduled_s for each in other] == [each.scheduled_s for each in one]
        assert [each.output_tokens for each in other] == [each.output_tokens for each in one]
