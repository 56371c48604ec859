"""How many requests are in flight at once, from the rate alone: modelled, nothing is run.

A server whose requests share it, each as long as it takes with k of them, has n in flight with a
probability that is proportional to

    rate^n x S(1) x S(2) x ... x S(n) / n!

where S(k) is how long a request stays with k in flight throughout, whatever lengths are spread like
(symmetric queues with Poisson arrivals: Kelly, Reversibility and Stochastic Networks, 1979, chapter
3; from memory, not looked up). Here S(k) is a step of k sequences for each token of its answer, and
the prompts of all k, each of which holds up the others.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bench.costs import CostModel
from bench.traffic.live import Work, steps_s

OFTEN = 0.99
"""Of the time no more are in flight than are counted as wanted."""


def most_in_flight(load: NDArray[np.float64]) -> int:
    """Requests that are in flight at most in 99 % of the time; `load` is the rate x S(k), k from 1
    to as many as may run."""
    log_terms = np.log(load / np.arange(1, len(load) + 1))
    weights = np.concatenate([[0.0], log_terms.cumsum()])
    terms = np.exp(weights - weights.max())
    return int(np.searchsorted(terms.cumsum(), OFTEN * terms.sum()))


def step_s(work: Work, number: int, costs: CostModel) -> float:
    """Seconds of a step, prompts of others included, where `number` requests are in flight."""
    steps = work.steps + 1  # the first token comes with the prompt
    decode_s, mixed_s = steps_s(work, number / steps, costs)
    return decode_s + number * (mixed_s - decode_s) / steps
