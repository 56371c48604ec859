"""How many KV tokens traffic would keep alive, were memory no limit: modelled, nothing is run.

Little's law, L = lambda x W: in steady state as many requests are in flight as arrive a second
times the seconds that each stays. How long each stays depends on the step's time, which depends on
how many are in flight; the two are solved for together, at mean work:

    step = decode(n, context) / (1 - lambda x (mixed - decode))
    n = lambda x (output - 1) x step,  context = n's KV tokens

`decode` is the cost model's step of n decoding sequences, `mixed` that step with one prompt in it.
Each prompt is computed in one step, but for what a cache is said to find of it. Clients that leave
or read slowly change how long each stays, and what is held meanwhile (`with_clients`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bench.costs import CostModel, StepWork
from bench.traffic.sample import Flags, Floats, Ints, Sample

MOST_ROUNDS = 20_000
CLOSE_ENOUGH = 1e-6


class Work(NamedTuple):
    """Means of a request: tokens of its prompt, those computed, and query-key pairs of these; and
    over its decode steps, sequences that decode, KV tokens that they read, and KV tokens held (a
    prompt's once, however many branches)."""

    prompt_tokens: float
    computed_tokens: float
    prompt_pairs: float
    steps: float
    decodes: float
    context_tokens: float
    held_tokens: float


class Live(NamedTuple):
    """Means in steady state: seconds of a step and of one with a prompt in it, requests in flight
    and the KV tokens that they hold, prefixes that they share counted once for each."""

    step_s: float
    mixed_step_s: float
    requests: float
    kv_tokens: float

    def answered_in_s(self, output_tokens: np.ndarray) -> Floats:
        """From sending to the last token: a step for the first, one for each that follows."""
        return self.mixed_step_s + (output_tokens - 1) * self.step_s


class OverloadError(Exception):
    """The load is more than is served at any batch; the message says why."""


def mean_work(sample: Sample, served: Flags, found_tokens: Ints) -> Work:
    """Of the requests that are served, of whose prompts so many tokens are found in a cache."""
    prompt, output, branches, found = (
        column[served].astype(np.float64)
        for column in (sample.prompt_tokens, sample.said_tokens, sample.branches, found_tokens)
    )
    steps = output - 1  # the first token comes with the prompt
    grown = steps * output / 2
    return Work(
        prompt_tokens=float(prompt.mean()),
        computed_tokens=float((prompt - found).mean()),
        prompt_pairs=float((prompt * (prompt + 1) - found * (found + 1)).mean() / 2),
        steps=float(steps.mean()),
        decodes=float((branches * steps).mean()),
        context_tokens=float((branches * (prompt * steps + grown)).mean()),
        held_tokens=float((prompt * steps + branches * grown).mean()),
    )


def solve(work: Work, rate_rps: float, costs: CostModel, max_num_seqs: int) -> Live:
    """The smallest batch that keeps up. Raises OverloadError where none does."""
    step_s = 0.0
    for _ in range(MOST_ROUNDS):
        decode_s, mixed_s = steps_s(work, rate_rps * step_s, costs)
        prefill_share = rate_rps * (mixed_s - decode_s)
        if prefill_share >= 1:
            raise OverloadError("prompts alone take more than all the time there is")
        before, step_s = step_s, decode_s / (1 - prefill_share)
        if rate_rps * work.decodes * step_s > max_num_seqs:
            raise OverloadError(f"it takes a batch of more than max_num_seqs={max_num_seqs}")
        if step_s - before <= CLOSE_ENOUGH * step_s:
            return _live(work, rate_rps, step_s, mixed_s)
    raise OverloadError("decoding alone takes more than all the time there is")


def with_clients(
    live: Live, sample: Sample, served: Flags, rate_rps: float, buffer_tokens: int | None
) -> Live:
    """The same steps, where some clients leave early, and some read so slowly that their requests
    are paused with `buffer_tokens` tokens unread (None: never)."""
    prompt, said, branches, left_s, read_per_s = (
        column[served].astype(np.float64)
        for column in (sample.prompt_tokens, sample.said_tokens, sample.branches,
                       sample.left_after_s, sample.read_per_s)
    )  # fmt: skip
    stays_s = live.mixed_step_s + (said - 1) * live.step_s
    if buffer_tokens is not None:
        read_s = live.mixed_step_s + np.maximum(said - 1 - buffer_tokens, 0) / read_per_s
        stays_s = np.maximum(stays_s, read_s)
    stays_s = np.minimum(stays_s, left_s)
    decodes_s = np.maximum(stays_s - live.mixed_step_s, 0)
    grown = np.minimum(said, 1 + decodes_s / live.step_s) / 2  # on average
    held = prompt * stays_s + branches * grown * decodes_s
    return live._replace(
        requests=rate_rps * float(stays_s.mean()), kv_tokens=rate_rps * float(held.mean())
    )


def _live(work: Work, rate_rps: float, step_s: float, mixed_s: float) -> Live:
    stays_s = mixed_s + work.steps * step_s
    held = work.prompt_tokens * mixed_s + work.held_tokens * step_s
    return Live(step_s, mixed_s, rate_rps * stays_s, rate_rps * held)


def steps_s(work: Work, requests_a_step: float, costs: CostModel) -> tuple[float, float]:
    """A step of the decodes that are in flight where so many requests arrive in its time, at least
    of one; and that step with a prompt."""
    decodes = requests_a_step * work.decodes
    sequences = max(1, round(decodes))
    context = requests_a_step * work.context_tokens
    if decodes < 1:  # a step there is has one sequence
        context = work.context_tokens / work.decodes if work.decodes else 0.0
    decode = StepWork(sequences, sequences, sequences, round(context))
    mixed = StepWork(
        sequences + round(work.computed_tokens), sequences + 1, sequences, round(context),
        round(work.prompt_pairs), round(work.prompt_tokens),
    )  # fmt: skip
    return costs.step_s(decode), costs.step_s(mixed)
