"""The live-token estimate: its own equations, its limits, and an engine's run."""

from __future__ import annotations

import numpy as np
import pytest

from bench.costs import CostModel, StepWork
from bench.packaged import load_constants, load_gpu, load_model
from bench.traffic.live import OverloadError, Work, mean_work, solve, with_clients
from bench.traffic.sample import draw
from workloads.base import PATIENT, Client, Leave, Request

COSTS = CostModel(
    shape=load_model("llama3_8b"),
    gpu=load_gpu("a100_80gb"),
    weight_dtype="fp16",
    kv_dtype="fp16",
    tensor_parallel=1,
    constants=load_constants(),
    kv_block_tokens=16,
)


def work(prompt: int, output: int, branches: int = 1, found: int = 0) -> Work:
    sample = draw([Request(0, 0.0, prompt, output, branches=branches)])
    return mean_work(sample, np.array([True]), np.array([found]))


def test_work_is_summed_over_a_request_s_steps() -> None:
    # The first of 4 tokens comes with the prompt; three steps hold and read 10 + 1, 2 and 3.
    assert work(10, 4) == Work(10, 10, 55, 3, 3, 36, 36)
    # Two branches read the prompt each and hold it once: 2 x 36, and 30 + 2 x 6.
    assert work(10, 4, branches=2) == Work(10, 10, 55, 3, 6, 72, 42)
    # Of 10 tokens 4 were found: 6 are computed, the pairs are 5 + 6 + ... + 10.
    assert work(10, 4, found=4) == Work(10, 6, 45, 3, 3, 36, 36)


def test_a_lone_request_takes_the_steps_of_one_sequence() -> None:
    alone = work(100, 51)
    live = solve(alone, 1e-4, COSTS, 256)
    context = round(alone.context_tokens / 50)
    decode_s = COSTS.step_s(StepWork(1, 1, 1, context))
    assert live.step_s == pytest.approx(decode_s, rel=1e-3)
    # In flight: 1e-4 of the time that it stays, 50 steps and the one of its prompt.
    assert live.requests == pytest.approx(1e-4 * (50 * live.step_s + live.mixed_step_s))
    assert live.answered_in_s(np.array([51])) == pytest.approx(live.requests / 1e-4)


def test_the_step_keeps_up_with_what_arrives() -> None:
    """In the time of one step as many decode steps are asked for as its batch takes."""
    heavy, rate_rps = work(1000, 201), 6.0
    live = solve(heavy, rate_rps, COSTS, 256)
    batch = rate_rps * heavy.decodes * live.step_s
    context = round(rate_rps * heavy.context_tokens * live.step_s)
    decode_s = COSTS.step_s(StepWork(round(batch), round(batch), round(batch), context))
    prefills_s = rate_rps * live.step_s * (live.mixed_step_s - decode_s)
    assert live.step_s == pytest.approx(decode_s + prefills_s, rel=1e-3)
    assert 1 < batch < 256


def test_clients_stay_until_they_leave_or_have_read() -> None:
    """Four requests of 100 + 201 tokens, 1e-4 of each a second. The first is answered; the second
    leaves with 51 tokens, the third after 1 s; the fourth reads 10 tokens/s of which 64 wait, so
    that it is paused until (201 - 1 - 64) / 10 s after its first token."""
    clients = (
        PATIENT,
        Client(Leave("away", after_tokens=51)),
        Client(Leave("away", after_s=1.0)),
        Client(tokens_per_s=10.0),
    )
    sample = draw(Request(n, 0.0, 100, 201, client=client) for n, client in enumerate(clients))
    every, none = np.ones(4, dtype=bool), np.zeros(4, dtype=np.int64)
    live = solve(mean_work(sample, every, none), 1e-4, COSTS, 256)
    first_s, step_s = live.mixed_step_s, live.step_s
    stays_s = np.array([first_s + 200 * step_s, first_s + 50 * step_s, 1.0, first_s + 13.6])
    said = np.array([201, 51, 1 + (1.0 - first_s) / step_s, 201])
    assert 1.0 < stays_s[0] < stays_s[3]
    held = 100 * stays_s + said / 2 * (stays_s - first_s)
    found = with_clients(live, sample, every, 1e-4, 64)
    assert found.requests == pytest.approx(1e-4 * stays_s.mean())
    assert found.kv_tokens == pytest.approx(1e-4 * held.mean())
    unpaused = with_clients(live, sample, every, 1e-4, None)
    assert unpaused.requests == pytest.approx(1e-4 * stays_s[[0, 1, 2, 0]].mean())


def test_patient_clients_change_nothing() -> None:
    sample = draw([Request(0, 0.0, 1000, 201, branches=2)])
    served, nothing = np.array([True]), np.array([0])
    live = solve(mean_work(sample, served, nothing), 3.0, COSTS, 256)
    again = with_clients(live, sample, served, 3.0, 64)
    assert tuple(again) == pytest.approx(tuple(live))


def test_load_grows_faster_than_the_rate() -> None:
    heavy = work(1000, 201)
    slow, fast = (solve(heavy, rate_rps, COSTS, 256).kv_tokens for rate_rps in (3.0, 6.0))
    assert fast > 2 * slow


def test_too_much_load_says_what_there_is_too_much_of() -> None:
    with pytest.raises(OverloadError, match="prompts alone"):
        solve(work(8000, 2), 5.0, COSTS, 256)
    with pytest.raises(OverloadError, match="max_num_seqs=4"):
        solve(work(100, 1000), 5.0, COSTS, 4)
    found = work(8000, 2, found=7984)
    assert solve(found, 5.0, COSTS, 256).requests < 1
