"""What is drawn, in another process and on another machine, and what drawing leaves alone."""

from __future__ import annotations

import hashlib
import random

import numpy as np

from tests.workloads.other_process import said_elsewhere
from workloads.lengths.base import Lengths
from workloads.lengths.fixed import FixedLength
from workloads.lengths.gamma import GammaLengths
from workloads.lengths.geometric import GeometricLengths
from workloads.lengths.lognormal import LognormalLengths
from workloads.lengths.mixture import MixtureLengths
from workloads.lengths.quantiles import QuantileLengths
from workloads.lengths.uniform import UniformLengths
from workloads.lengths.zipf import ZipfLengths
from workloads.streams import stream

GAMMA = GammaLengths(mean_tokens=1154.7, cv=0.96, min_tokens=2, max_tokens=14_050)
LOGNORMAL = LognormalLengths(mean_tokens=208, cv=0.76, min_tokens=7, max_tokens=2180)
EACH: list[Lengths] = [
    FixedLength(tokens=512),
    UniformLengths(min_tokens=10, max_tokens=2000),
    LOGNORMAL,
    GAMMA,
    GeometricLengths(mean_tokens=2, max_tokens=40),
    ZipfLengths(exponent=0.7, max_tokens=131_072),
    QuantileLengths(quantiles={0: 2, 0.5: 1020, 0.9: 2727, 0.99: 4052, 1: 14_050}),
    MixtureLengths(
        components=[{"weight": 1, "lengths": GAMMA}, {"weight": 2, "lengths": LOGNORMAL}]
    ),
]


def digests(seed: int = 0) -> dict[str, str]:
    """The start of a hash of the first 10,000 lengths of each distribution."""
    found = {}
    for lengths in EACH:
        name = type(lengths).__name__
        drawn = lengths.draw(stream(seed, f"lengths/{name}"), 10_000)
        found[name] = hashlib.sha256(repr(drawn.tolist()).encode()).hexdigest()[:12]
    return found


def test_a_seed_gives_the_same_lengths_in_other_processes() -> None:
    others = [said_elsewhere(__file__, "digests()", hash_seed) for hash_seed in (1, 2)]
    assert others == [str(digests())] * 2


def test_a_seed_gives_these_lengths_on_every_machine() -> None:
    # Recorded, not derived: a change of numpy's streams, or of ours, must not pass unseen.
    assert digests() == {
        "FixedLength": "c66ee979b187",
        "UniformLengths": "1eb8c1006d31",
        "LognormalLengths": "5fabbb06a6c0",
        "GammaLengths": "81cf935b5eed",
        "GeometricLengths": "f7c6cc4b2d5f",
        "ZipfLengths": "1ac70a1e5e7d",
        "QuantileLengths": "8512c75e1618",
        "MixtureLengths": "89ed2da4e0fb",
    }


def test_seeds_differ_and_zero_is_one_of_them() -> None:
    zero, one = digests(0), digests(1)
    assert zero == digests(0)
    assert {name for name in zero if zero[name] == one[name]} == {"FixedLength"}


def test_drawing_leaves_global_randomness_alone() -> None:
    before = repr(np.random.get_state()), random.getstate()
    digests()
    assert (repr(np.random.get_state()), random.getstate()) == before
