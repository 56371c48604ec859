"""Texts that requests share: system prompts, documents; few of them popular, most of them rare."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.base import Segment, Source
from workloads.lengths.base import Lengths, check_lengths
from workloads.settings import count as check_count
from workloads.settings import number, refusal
from workloads.streams import stream

MAX_TEXTS = 1_000_000
_MOSTLY = 0.5
"""How likely a pick may be one of the most popular texts, as many as are picked."""


class SharedTexts:
    """`count` texts, each of a fixed length, the n-th most popular picked with a probability in
    proportion to n^-exponent (Zipf; exponent 0: all alike).

    A text's length is drawn from `tokens` by its number alone: not by the run's seed, nor by how
    many there are. So are its tokens (workloads/tokens.py).
    """

    def __init__(self, *, count: int, tokens: Lengths, exponent: float = 1.0) -> None:
        self.count = check_count("count of shared texts", count, 1, MAX_TEXTS, "texts", "use 8")
        self.lengths = check_lengths("tokens of shared texts", tokens)
        fix = "0 is uniform, 1 Zipf's law"
        value = number("exponent of shared texts", exponent, 0, 10, "(an exponent, no unit)", fix)
        weights = np.arange(1, self.count + 1, dtype=np.float64) ** -value
        self.probabilities = weights / weights.sum()
        self._upper = np.cumsum(weights) / weights.sum()

    def segments(self, name: str) -> list[Segment]:
        """The texts, the most popular first; `name` tells these from a workload's others."""
        tokens = self.lengths.draw(stream(0, f"texts/{name}"), self.count).tolist()
        return [shared_segment(name, number, length) for number, length in enumerate(tokens)]

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """`size` independent picks, as numbers from 0. Two draws in a row give what one would."""
        picks = np.searchsorted(self._upper, rng.random(size), side="right")
        return np.minimum(picks, self.count - 1)

    def draw_distinct(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """`size` different texts, picked one after another, each among those that are left.

        A pick that was picked before is none; where these would be most of all, by a race: the
        text whose exponential clock of rate p_n rings first is the first picked (Efraimidis and
        Spirakis, 2006). Both are the same law.
        """
        if self._upper[size - 1] < _MOSTLY:
            return self._draw_again(rng, size)
        rings = rng.standard_exponential(self.count) / self.probabilities
        first: NDArray[np.int64] = np.argpartition(rings, size - 1)[:size]
        return first[np.argsort(rings[first])]

    def _draw_again(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        picked: dict[int, None] = {}
        while len(picked) < size:
            picked |= dict.fromkeys(self.draw(rng, size - len(picked)).tolist())
        return np.array(list(picked))


def shared_segment(name: str, number: int, tokens: int) -> Segment:
    """The first `tokens` of the shared text of that number, below 2^31, among those of a name."""
    return Segment(Source.SHARED, (zlib.crc32(name.encode()) << 31) + number, tokens)


def check_texts(setting: str, value: Any) -> SharedTexts:
    """`value`, or WorkloadError unless it is shared texts."""
    if not isinstance(value, SharedTexts):
        fix = "give it count, tokens and exponent, as conf/workload/rag.yaml does"
        raise refusal(setting, value, "a SharedTexts", fix)
    return value
