"""A limit on live tokens at admission that leaves running sequences the room that they grow into.

`engine.max_live_tokens` admits while the known tokens of all who run stay within it. Those who run
will say more. Taken at a random step of a running sequence it has l live tokens, and r to come with
a deviation of s; k of them need at most, were none to end before the others are through,

    k (l + tail + r) + z s sqrt(k) = budget

in 99 of 100 cases (z = 2.33, the sum of k taken as normal), where `tail` is what a sequence leaves
empty in its last block. The limit is k l.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bench.plan.layouts import BLOCKS, Held, Lengths

Z = 2.33


class Admission(NamedTuple):
    """`limit_tokens` is a value for engine.max_live_tokens, which `sequences` running sequences
    reach. The rest are means of a running sequence: live tokens, those to come with their standard
    deviation, and slots left empty in last blocks."""

    limit_tokens: int
    sequences: float
    live_tokens: float
    to_come_tokens: float
    to_come_deviation: float
    tail_tokens: float


def admission(lengths: Lengths, held: Held, budget_tokens: int) -> Admission:
    """Of requests that are served, `held` being what they hold, in a budget of so many tokens."""
    to_come, deviation = _to_come(lengths)
    live = held.live_mean
    tail = held.mean(BLOCKS) - live
    sequences = _sequences(live + tail + to_come, Z * deviation, budget_tokens)
    return Admission(int(sequences * live), sequences, live, to_come, deviation, tail)


def _to_come(lengths: Lengths) -> tuple[float, float]:
    """Mean and standard deviation of the tokens that a running sequence has still to say."""
    output = lengths.output_tokens.astype(np.float64)
    branches = lengths.branches.astype(np.float64)
    steps = output.sum()
    mean = float((branches * output * (output - 1) / 2).sum() / steps)
    squares = branches**2 * (output - 1) * output * (2 * output - 1) / 6
    variance = float(squares.sum() / steps) - mean**2
    return mean, math.sqrt(max(variance, 0.0))


def _sequences(each: float, spread: float, budget: float) -> float:
    """The k with k x each + spread x sqrt(k) = budget."""
    root = (math.sqrt(spread**2 + 4 * budget * each) - spread) / (2 * each)
    return root**2
