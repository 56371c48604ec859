"""A step without batching takes what its passes take, one after another."""

from __future__ import annotations

import pytest

from bench.costs import CostModel, StepWork
from bench.engine.one_at_a_time import OneAtATimeExecutor
from bench.engine.scheduler import Plan
from bench.engine.sequence import Sequence
from bench.packaged import load_constants, load_gpu
from tests.bench.engine.lab import SHAPE
from workloads.base import Request

COSTS = CostModel(
    shape=SHAPE,
    gpu=load_gpu("a100_80gb"),
    weight_dtype="fp16",
    kv_dtype="fp16",
    tensor_parallel=1,
    constants=load_constants("default"),
)


def sequence(request_id: int, prompt: int, computed: int, slots: int) -> Sequence:
    """One that computes all that is known of it next; `slots` are held."""
    made = Sequence(Request(request_id, 0.0, prompt, 10), 0.0)
    made.found(computed)
    made.chunk, made.slots = prompt - computed, slots
    return made


PLAN = Plan([sequence(0, 200, 0, 512), sequence(1, 101, 100, 512), sequence(2, 301, 300, 512)])
IN_ALL = StepWork(tokens=202, sampled=3)
"""Of the plan; what is computed is read from its sequences."""


def seconds(*, reads_all_slots: bool) -> float:
    executor = OneAtATimeExecutor(COSTS, None, dict, reads_all_slots=reads_all_slots)
    computed = executor.run(IN_ALL, PLAN, 0)
    assert computed.seconds is not None
    assert executor.modelled_s == computed.seconds
    return computed.seconds


def decode(context: int) -> float:
    work = StepWork(tokens=1, sampled=1, decode_sequences=1, decode_context_tokens=context)
    return COSTS.step_s(work)


def prefill(pairs: int, context: int) -> float:
    work = StepWork(200, 1, prefill_attention_tokens=pairs, prefill_context_tokens=context)
    return COSTS.step_s(work)


def test_each_sequence_is_a_pass_of_its_own() -> None:
    expected = prefill(pairs=200 * 201 // 2, context=200) + decode(101) + decode(301)
    assert seconds(reads_all_slots=False) == pytest.approx(expected, rel=1e-12)


def test_a_static_cache_is_attended_to_in_its_whole_length() -> None:
    expected = prefill(pairs=200 * 512, context=512) + 2 * decode(512)
    assert seconds(reads_all_slots=True) == pytest.approx(expected, rel=1e-12)
