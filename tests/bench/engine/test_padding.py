"""Padded steps: powers of two from 16 up, at most the largest step, charged like any tokens."""

from __future__ import annotations

import pytest

from bench.costs import CostModel, StepWork
from bench.engine.executor import ModelledExecutor
from bench.engine.padding import Padding
from bench.engine.scheduler import Plan
from bench.packaged import load_constants, load_gpu, load_model


@pytest.mark.parametrize(
    ("tokens", "rows", "padded"),
    [
        (1, 1, (16, 16)),
        (16, 16, (16, 16)),
        (17, 3, (32, 16)),
        (1000, 0, (1024, 0)),  # a chunk that ends no prompt samples nothing
        (1024, 65, (1024, 128)),
        (5000, 200, (8192, 200)),  # the largest rows are the largest shape
        (8300, 1, (8392, 16)),
    ],
)
def test_a_step_is_padded_to_the_next_shape(
    tokens: int, rows: int, padded: tuple[int, int]
) -> None:
    work = Padding(largest_tokens=8392, largest_rows=200).pad(StepWork(tokens, rows))
    assert (work.tokens, work.sampled) == padded


def test_attention_is_not_padded() -> None:
    work = StepWork(
        tokens=17,
        sampled=2,
        decode_sequences=1,
        decode_context_tokens=50,
        prefill_attention_tokens=136,
        prefill_context_tokens=16,
    )
    padded = Padding(4096, 256).pad(work)
    assert (padded.decode_sequences, padded.decode_context_tokens) == (1, 50)
    assert (padded.prefill_attention_tokens, padded.prefill_context_tokens) == (136, 16)


def test_padded_tokens_take_the_time_of_tokens() -> None:
    costs = CostModel(
        shape=load_model("llama3_8b"),
        gpu=load_gpu("a100_80gb"),
        weight_dtype="fp16",
        kv_dtype="fp16",
        tensor_parallel=1,
        constants=load_constants(),
    )
    executor = ModelledExecutor(costs, None, dict, Padding(4096, 256))
    assert executor.run(StepWork(1100, 1), Plan(), 0).seconds == costs.step_s(StepWork(2048, 16))
