"""Greedy tokens, computed on the CPU here: alike from every backend; another is caught."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from bench.gpu_check import token_job, tokens
from bench.gpu_check.processes import PartError
from bench.model.weights import random_decoder
from bench.packaged import load_model


@cache
def served(name: str, dtype: str = "fp32") -> dict[str, Any]:
    """The job of a backend, each prompt said once."""
    way = tokens.WAYS[name]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_job, "COPIES", 1)
        found = token_job.greedy_tokens(tokens._payload(way, "cpu", dtype))
    torch.set_num_threads(threads)
    return found


@pytest.mark.parametrize("name", ["contiguous", "paged_radix"])
def test_tokens_are_the_best_of_a_plain_forward_pass(name: str) -> None:
    found = served(name)
    assert [len(ids) for ids in found["tokens"]] == [
        prompt + output
        for prompt, output in zip(token_job.PROMPTS, token_job.OUTPUTS, strict=True)
    ]  # fmt: skip
    assert found["worst_gap"] <= tokens.TIES


def test_another_token_is_far_from_the_best() -> None:
    """The two best are as near as TIES once in thousands of places."""
    model = load_model("tiny")
    decoder = random_decoder(model, torch.float32, token_job.SEED)
    ids, prompt = list(served("paged_radix")["tokens"][1]), token_job.PROMPTS[1]
    assert token_job.worst_gap(decoder, ids, prompt) <= tokens.TIES
    ids[prompt + 3] = (ids[prompt + 3] + 1) % model.vocab_size
    assert token_job.worst_gap(decoder, ids, prompt) > 100 * tokens.TIES


def test_the_verdict_counts_what_differs_and_judges_fp32() -> None:
    cpu = {"tokens": [[1, 2], [3, 4]], "worst_gap": 0.0, "preemptions": 0}
    tie = {"tokens": [[1, 2], [3, 5]], "worst_gap": 5e-5, "preemptions": 2}
    wrong = {"tokens": [[1, 7], [3, 5]], "worst_gap": 0.2, "preemptions": 0}
    rounded = {"a": {"tokens": [[1], [2]]}, "b": {"tokens": [[1], [9]]}}
    good = tokens.judge(cpu, {"paged": tie, "vmm": cpu}, rounded, [])
    assert good.passed
    assert good.figures == (
        "2 backends x 2 requests in fp32: 1 with a token other than the CPU's, the worst 5e-05 "
        "below the best logit (paged; 0.0001 is a tie), 2 preemptions; in bf16 1 differ from a's"
    )
    bad = tokens.judge(cpu, {"paged": tie, "vmm": wrong}, {}, [])
    assert not bad.passed
    assert "3 with a token other than the CPU's, the worst 0.2 below" in bad.figures
    lost = tokens.judge(cpu, {"paged": tie}, rounded, ["vmm in fp32: no pages"])
    assert not lost.passed
    assert lost.figures.endswith("vmm in fp32: no pages")
    with pytest.raises(PartError, match="no backend gave tokens in fp32; vmm in fp32: no pages"):
        tokens.judge(cpu, {}, {}, ["vmm in fp32: no pages"])
