"""The division of a card that a plan shows is that of a run, and the classic case is by hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bench.config import from_container
from bench.plan.division import bounded, changed
from tests.bench.engine.runs import composed, run
from tests.virtual_gpu import run_on_virtual_gpu, skip_without_virtual_gpu

CLASSIC = "experiment=classic_13b_24gb"
JOB = "bench.plan.division_job"

# 13B: 40 layers of 5,120 x 15,360 (qkv), 5,120 x 5,120, 5,120 x 27,648 and 13,824 x 5,120.
LINEAR = 40 * (5120 * 15_360 + 5120 * 5120 + 5120 * 27_648 + 13_824 * 5120)
# Four bits, a scale of 16 and a zero of 4 for each 128; embedding, lm_head and 81 norms at 16.
CLASSIC_WEIGHTS = LINEAR // 2 + LINEAR // 128 * 5 // 2 + 2 * (2 * 32_000 * 5120 + 81 * 5120)
USABLE = int(23.64 * (1 << 30)) - int(0.4 * (1 << 30))
# A step of 2,048 tokens where the feed-forward is widest, in 16 bits: input, residual and norm
# (5,120 each), gate and up, silu, their product; ids, positions and rotary; 256 sampled rows.
CLASSIC_PEAK = 2048 * (2 * (3 * 5120 + 4 * 13_824) + 2 * 8 + 2 * 2 * 64) + 256 * 8


@cache
def config(*overrides: str) -> dict[str, Any]:
    """A configuration as plain data."""
    return composed(Path("unused"), *overrides).config


@cache
def divide(*overrides: str, function: str = "divide_variant") -> dict[str, Any]:
    """What the job says of a configuration."""
    asked = config(*overrides)
    found: dict[str, Any] = run_on_virtual_gpu(
        f"{JOB}:{function}", {"config": asked}, gpu=asked["gpu"]["name"]
    )
    return found


@pytest.fixture(autouse=True)
def needs_virtual_gpu() -> None:
    """Skips where there can be none."""
    skip_without_virtual_gpu()


def test_the_classic_case_is_by_hand() -> None:
    plan = divide(CLASSIC)
    assert plan["weights_bytes"] == CLASSIC_WEIGHTS == 7_247_882_240
    assert plan["kv_bytes_per_token"] == 2 * 40 * 40 * 128 * 2 == 819_200
    assert plan["activation_peak_bytes"] == CLASSIC_PEAK
    assert plan["usable_bytes"] == pytest.approx(USABLE, abs=2 << 20)
    # What is left of 90 %: weights, 8 MiB of workspace, and less than 1 MiB of rounding a matrix.
    left = int(plan["usable_bytes"] * 0.9) - CLASSIC_WEIGHTS - CLASSIC_PEAK
    assert 8 << 20 < left - plan["kv_budget_bytes"] < (8 + 4 * 3 * 40) << 20
    eight = 8 * 4000 * 819_200
    assert eight == 26_214_400_000
    assert eight / 2 < plan["kv_budget_bytes"] < eight  # FP8's half of it fits, FP16's does not


def test_a_run_divides_the_card_as_planned(tmp_path: Path) -> None:
    overrides = (CLASSIC, "kv_dtype=fp8", "backend=contiguous", "stop_after_s=1")
    plan = divide(*overrides)
    summary = run(tmp_path / "run", *overrides).summary
    for key in ("kv_budget_bytes", "kv_bytes_per_token", "weights_bytes", "workspace_bytes",
                "activation_peak_bytes", "headroom_bytes", "sources_bytes"):  # fmt: skip
        assert plan[key] == summary[key], key


def test_what_does_not_fit_is_an_answer() -> None:
    # 24.2 GiB of 16-bit weights on a card of 23.24.
    assert divide(CLASSIC, "weight_dtype=fp16")["refused"].startswith("model=llama2_13b needs 24.2")
    held = divide(CLASSIC, "backend=contiguous", "kv_budget=3GiB")
    assert held["refused"] is None
    assert held["kv_budget_bytes"] == 3 << 30
    assert held["pool_bytes"] is None
    assert "cannot hold one sequence of max_model_len=4096" in held["backend_refused"]


def test_a_setting_that_no_card_takes_is_an_answer_for_variants_alone() -> None:
    wrong = ("engine.prefill=whole", "engine.token_budget=10")
    assert divide(*wrong)["refused"].startswith("engine.token_budget=10 is below max_model_len")
    with pytest.raises(pytest.fail.Exception, match=r"engine\.token_budget=10 is below"):
        divide(*wrong, function="divide")


def test_without_a_virtual_gpu_there_is_an_upper_bound() -> None:
    bound = bounded(from_container(config(CLASSIC)))
    exact = divide(CLASSIC)
    assert bound.how == "upper bounds"
    assert bound.kv_budget_bytes == int(bound.usable_bytes * 0.9) - CLASSIC_WEIGHTS
    assert bound.kv_budget_bytes > exact["kv_budget_bytes"]
    assert (bound.activation_peak_bytes, bound.headroom_bytes, bound.pool_bytes) == (None,) * 3
    wide = from_container(changed(config(CLASSIC), {"weight_dtype": "fp16"}))
    assert (bounded(wide).live_tokens, bounded(wide).refused) == (
        None, "the weights alone do not fit"
    )  # fmt: skip


def test_a_variant_changes_one_setting_and_not_the_original() -> None:
    original = {"engine": {"prefill": None, "name": "inrepo"}, "kv_dtype": "fp16"}
    other = changed(original, {"engine.prefill": "whole", "kv_dtype": "fp8"})
    assert other == {"engine": {"prefill": "whole", "name": "inrepo"}, "kv_dtype": "fp8"}
    assert original == {"engine": {"prefill": None, "name": "inrepo"}, "kv_dtype": "fp16"}
