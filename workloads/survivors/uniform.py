"""Survivors that go on from any beam alike: the Wright-Fisher process."""

from __future__ import annotations

from collections.abc import Iterator

from workloads.streams import stream
from workloads.survivors.base import CHUNK, MAX_BRANCHES, in_place


class UniformSurvivors:
    """Each survivor goes on from a beam drawn uniformly, independently of the others.

    Of width k: two survivors go on from the same beam with probability 1/k, and two beams have
    their last common ancestor k steps back on average (Fisher, 1930; Wright, 1931).
    """

    max_width = MAX_BRANCHES

    def steps(self, seed: int, request_id: int, width: int) -> Iterator[tuple[int, ...]]:
        rng = stream(seed, f"survivors/{request_id}")
        while True:
            for parents in rng.integers(width, size=(CHUNK, width)).tolist():
                yield tuple(parents[survivor] for survivor in in_place(parents))
