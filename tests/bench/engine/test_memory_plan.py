"""A card's division into weights, activations, KV and what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.config import from_container
from bench.engine.memory_plan import plan_host_memory
from bench.packaged import load_gpu
from tests.bench.engine.runs import composed
from tests.virtual_gpu import run_on_virtual_gpu

GIB = 1 << 30
PAGE_BYTES = 2 << 20
LLAMA3_8B_WEIGHTS = 2 * 8_030_261_248  # parameters, of which none are padding
SEQUENCE_BYTES = 8192 * 131_072  # 1 GiB: max_model_len x KV bytes per token


@pytest.fixture
def divide(tmp_path: Path) -> Any:
    def job(*overrides: str) -> dict[str, Any]:
        config = composed(tmp_path / "out", *overrides).config
        payload = {"config": config, "pooled": config["backend"]["name"] == "paged"}
        target = "tests.bench.engine.plan_jobs:divide"
        found: dict[str, Any] = run_on_virtual_gpu(target, payload, gpu=config["gpu"]["name"])
        return found

    return job


def test_kv_gets_what_utilization_leaves_of_weights_workspace_and_activations(divide: Any) -> None:
    plan = divide("backend=contiguous")
    usable = load_gpu("a100_80gb").usable_bytes
    assert plan["card_usable"] == usable
    assert plan["weights_bytes"] == LLAMA3_8B_WEIGHTS
    # The only fixed thing beside the weights is the matrix library's workspace, some MiB.
    assert 0 < plan["workspace_bytes"] < 64 << 20
    fixed = plan["weights_bytes"] + plan["workspace_bytes"] + plan["activation_peak_bytes"]
    rounding = plan["not_kv_allocated"] - plan["weights_bytes"] - plan["workspace_bytes"]
    assert 0 <= rounding < 32 * 10 << 20  # less than 1 MiB for each of some matrices a layer
    assert plan["kv_budget_bytes"] == int(usable * 0.9) - fixed - rounding
    assert plan["held_back_bytes"] == 0
    assert plan["kv_usage_sum"] == plan["kv_budget_bytes"]


def test_the_activation_peak_is_that_of_the_largest_step(divide: Any) -> None:
    """Chunked: 2,048 tokens, 256 sampled. Whole: a prompt of 8,192 and 255 decodes beside it."""
    chunked, whole = divide("backend=paged"), divide("backend=contiguous")
    for plan in (chunked, whole):
        assert 0 <= plan["activation_peak_bytes"] - plan["trace_peak"] < 12 << 20
    assert whole["trace_peak"] > 3 * chunked["trace_peak"]
    # By hand, where the feed-forward is at its widest, in FP16: the layer's input, the residual and
    # its norm (4,096 each), gate and up (28,672), silu and the product (14,336 each); and outside
    # of it the token's id and position, its rotary cos and sin (64 each), and the sampled rows.
    token_bytes = 2 * (3 * 4096 + 28_672 + 2 * 14_336) + 2 * 8 + 2 * 2 * 64
    assert whole["trace_peak"] == (8192 + 256) * token_bytes + 256 * 8


@pytest.mark.parametrize("utilization", [0.9, 0.5])
def test_a_kv_budget_keeps_the_share_of_slack(divide: Any, utilization: float) -> None:
    """Of the card without what another tenant holds, `utilization` is weights, activations, KV."""
    plan = divide("backend=contiguous", "kv_budget=4GiB", f"utilization={utilization}")
    assert plan["kv_budget_bytes"] == 4 * GIB
    assert plan["kv_usage_sum"] == 4 * GIB
    fixed = plan["not_kv_allocated"] + plan["activation_peak_bytes"]
    card = plan["card_usable"] - plan["held_back_bytes"]
    assert 0 <= card - int((fixed + 4 * GIB) / utilization) < PAGE_BYTES
    # The driver really has that much less.
    assert plan["driver_free"] == card - plan["reserved"]


def test_a_model_that_is_too_large_says_what_to_change(divide: Any) -> None:
    # 70.55 G parameters of 2 bytes are 131.4 GiB; 0.9 x (79.15 - 0.5) GiB are 70.8.
    assert divide("model=llama3_70b", "tensor_parallel=1") == {
        "error": "SettingError: model=llama3_70b needs 131.4 GiB of fp16 weights on each of "
        "tensor_parallel=1 GPUs and gpu=a100_80gb has 70.8 GiB at utilization=0.9: choose a "
        "larger gpu, more tensor_parallel or a smaller weight_dtype."
    }


def test_a_kv_budget_that_is_too_large_says_what_there_is(divide: Any) -> None:
    error = divide("kv_budget=70GiB")["error"]
    assert error.startswith(
        "SettingError: kv_budget=70GiB does not fit: weights and activations of model=llama3_8b "
        "leave 55."
    )


def test_no_room_for_kv_at_all_says_so(divide: Any) -> None:
    """24.2 GiB of weights, of which 0.63 x 38.89 leaves a quarter GiB for activations."""
    error = divide("model=llama2_13b", "gpu=a100_40gb", "utilization=0.63", "backend=contiguous")
    assert error["error"].startswith(
        "SettingError: there is no room for KV: weights and activations of model=llama2_13b leave -"
    )
    assert "raise utilization" in error["error"]


def test_activations_that_do_not_fit_beside_the_weights_say_so(divide: Any) -> None:
    error = divide("model=llama3_8b", "gpu=rtx4090", "engine.token_budget=200000",
                   "backend=contiguous")["error"]  # fmt: skip
    assert error == (
        "SettingError: the activations of a step of 200256 tokens do not fit beside the weights: "
        "lower engine.token_budget or engine.max_num_seqs, or choose a larger gpu."
    )


@pytest.mark.parametrize("backend", ["contiguous", "bucketed", "paged"])
def test_a_budget_below_one_sequence_is_the_backends_to_refuse(divide: Any, backend: str) -> None:
    plan = divide(f"backend={backend}", f"kv_budget={SEQUENCE_BYTES - 1}")
    assert plan["error"].startswith("BackendError: the KV budget of 1.00 GiB")
    assert plan["error"].endswith("raise kv_budget or utilization, or lower max_model_len")


def test_host_memory_is_divided_like_the_card_without_activations(tmp_path: Path) -> None:
    config = from_container(composed(tmp_path / "out", "utilization=0.5").config)
    plan = plan_host_memory(config)
    usable = load_gpu("a100_80gb").usable_bytes
    assert plan.kv_budget_bytes == int(usable * 0.5) - LLAMA3_8B_WEIGHTS
    assert (plan.activation_peak_bytes, plan.held_back_bytes) == (0, 0)
    config.kv_budget = "2GiB"
    assert plan_host_memory(config).kv_budget_bytes == 2 * GIB
