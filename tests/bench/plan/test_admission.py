"""The admission limit: its equation by hand, and how often running sequences outgrow the budget."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.plan.admission import Z, admission
from bench.plan.layouts import BLOCKS, held
from tests.bench.plan.test_layouts import lengths
from workloads.streams import stream


def test_answers_of_one_token_leave_nothing_to_come() -> None:
    """Prompts of 32 tokens fill two blocks: the budget is the limit."""
    requests = lengths((32, 1))
    found = admission(requests, held(requests, 1000), 3200)
    assert (found.limit_tokens, found.sequences, found.to_come_tokens) == (3200, 100, 0)


def test_the_limit_leaves_what_running_sequences_still_say() -> None:
    requests = lengths((100, 3))
    found = admission(requests, held(requests, 1000), 10_000)
    # Live 100, 101, 102; to come 2, 1, 0; in blocks 112: 11 empty on average.
    assert (found.live_tokens, found.to_come_tokens, found.tail_tokens) == (101, 1, 11)
    assert found.to_come_deviation == pytest.approx(math.sqrt(2 / 3))
    k = found.sequences
    needed = k * (101 + 11 + 1) + Z * math.sqrt(2 / 3) * math.sqrt(k)
    assert needed == pytest.approx(10_000)
    assert found.limit_tokens == int(k * 101)


def test_sequences_at_the_limit_outgrow_the_budget_once_in_a_hundred() -> None:
    """Drawn: sequences at random steps of random requests, all of which go on to their ends."""
    rng = stream(7, "test")
    rows = np.stack([rng.integers(50, 400, 300), rng.geometric(1 / 150, 300)], axis=1)
    requests = lengths(*rows.tolist())
    budget = 40_000
    found = admission(requests, held(requests, 4096), budget)
    running, draws = round(found.sequences), 4000
    prompt, output = requests.prompt_tokens, requests.output_tokens
    at_step = rng.choice(len(output), (draws, running), p=output / output.sum())
    final = prompt[at_step] + output[at_step] - 1
    held_at_end = final + found.tail_tokens
    # Prompts vary too, of which the limit on live tokens knows: it is met, not the mean.
    said = (rng.random((draws, running)) * output[at_step]).astype(np.int64)
    live = (prompt[at_step] + said).sum(axis=1)
    near = np.abs(live - found.limit_tokens) < 0.01 * found.limit_tokens
    assert near.sum() > 100
    share = float((held_at_end.sum(axis=1)[near] > budget).mean())
    assert 0.001 < share < 0.03


def test_more_room_means_a_higher_limit() -> None:
    requests = lengths((100, 50), (900, 10))
    found = held(requests, 1000)
    limits = [admission(requests, found, tokens).limit_tokens for tokens in (5000, 10_000, 20_000)]
    assert limits == sorted(set(limits))
    assert all(limit < tokens for limit, tokens in zip(limits, (5000, 10_000, 20_000), strict=True))
    assert found.mean(BLOCKS) > found.live_mean
