"""Survivors of a beam search by score, over random next-token distributions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from workloads.settings import count, number
from workloads.streams import stream
from workloads.survivors.base import CHUNK, in_place


class ScoreSurvivors:
    """The best `width` of all continuations by cumulative log probability, as in a beam search.

    After each beam, at each step, the next token is one of `candidates` whose probabilities are
    the softmax of independent N(0, spread^2) logits. The defaults are set by one published number
    that has nothing to do with beams: the mean entropy of such a distribution is ln(10.1) nats,
    and 10.13 is OPT-13B's perplexity on WikiText-2 (Frantar et al., GPTQ, ICLR 2023, table 3). A
    larger spread makes tokens more certain. No beam ends before the others.
    """

    def __init__(self, *, candidates: int = 64, spread: float = 2.35) -> None:
        fix = "use at least the number of beams, such as 64"
        self.max_width = count("candidates of scores", candidates, 2, 4096, "tokens", fix)
        fix = "0 makes all tokens alike, 5 nearly certain"
        self._spread = number("spread of scores", spread, 0, 100, "(a standard deviation)", fix)

    def steps(self, seed: int, request_id: int, width: int) -> Iterator[tuple[int, ...]]:
        rng = stream(seed, f"survivors/{request_id}")
        scores: list[float] = self._best(rng, (1,), width)[0].tolist()  # of the prompt
        while True:
            for gains in self._best(rng, (CHUNK, width), width).tolist():
                best = _best_candidates(scores, gains)
                order = in_place([beam for _, beam in best])
                scores = [best[survivor][0] for survivor in order]
                yield tuple(best[survivor][1] for survivor in order)

    def _best(
        self, rng: np.random.Generator, shape: tuple[int, ...], width: int
    ) -> NDArray[np.float64]:
        """Log probabilities of the `width` likeliest tokens of each of `shape` distributions:
        shape (*shape, width). No beam can have more survivors."""
        logits = self._spread * rng.standard_normal((*shape, self.max_width))
        logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return np.partition(logits, -width)[..., -width:]


def _best_candidates(scores: list[float], gains: list[list[float]]) -> list[tuple[float, int]]:
    """Score and beam of the best continuations of all beams, as many as there are beams."""
    candidates = (
        (score + gain, beam)
        for beam, (score, row) in enumerate(zip(scores, gains, strict=True))
        for gain in row
    )
    return sorted(candidates, reverse=True)[: len(scores)]
