"""Activations: recorded ones are those of any other step, and skipping a replay changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from bench.engine.activations import ActivationTrace, Allocation
from bench.packaged import option_names
from tests.virtual_gpu import run_on_virtual_gpu

EXPANDABLE = "expandable_segments:True"


def job(name: str, *, alloc_conf: str = "", gpu: str = "a100_80gb", **payload: Any) -> Any:
    target = f"tests.bench.engine.activation_jobs:{name}"
    return run_on_virtual_gpu(target, payload, alloc_conf=alloc_conf, gpu=gpu)


def test_the_peak_of_a_trace_is_the_most_that_lives_at_a_time() -> None:
    """100 + 2 a token, then 3 a row beside it, then the first goes and 4 a token come."""
    trace = ActivationTrace(
        (Allocation(100, 2, 0), Allocation(0, 0, 3), Allocation(0, 4, 0)), (0, 1, ~0, 2, ~1, ~2)
    )
    assert trace.peak_bytes(tokens=10, rows=5) == 100 + 20 + 15  # then 15 + 40
    assert trace.peak_bytes(tokens=100, rows=5) == 15 + 400  # before that 100 + 200 + 15


@pytest.mark.parametrize("tensor_parallel", [1, 2])
@pytest.mark.parametrize("model", option_names("model"))
def test_a_recorded_trace_is_what_any_other_shape_allocates(
    model: str, tensor_parallel: int
) -> None:
    assert job("new_shapes", gpu="h200_141gb", model=model, tensor_parallel=tensor_parallel) == 7


def test_the_peak_is_that_of_a_forward_pass() -> None:
    for expected, requested, allocated in job("peaks"):
        assert requested == expected
        # A block has at most 1 MiB to spare, and no dozen of them are alive at a time.
        assert 0 <= allocated - expected < 12 << 20


@pytest.mark.parametrize("alloc_conf", ["", EXPANDABLE])
def test_all_layers_leave_the_allocator_as_one_does_and_as_the_replay(alloc_conf: str) -> None:
    one, four, replay = (
        job("state_after_layers", alloc_conf=alloc_conf, layers=layers) for layers in (1, 4, None)
    )
    assert one == four
    assert one == replay


def test_a_shape_is_replayed_again_only_when_something_moved() -> None:
    assert job("memory", ages=False) == [1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 6]
    assert job("memory", ages=True) == list(range(1, 12))


@pytest.mark.parametrize("alloc_conf", ["", EXPANDABLE])
def test_a_replay_that_does_not_fit_leaves_nothing(alloc_conf: str) -> None:
    assert job("out_of_memory", alloc_conf=alloc_conf) == {"left": 0, "replays": 2}


@pytest.mark.parametrize("alloc_conf", ["", EXPANDABLE])
def test_a_step_that_does_not_fit_preempts_the_youngest_and_is_tried_once_more(
    alloc_conf: str,
) -> None:
    found = job("engine_out_of_activations", alloc_conf=alloc_conf, requests=2, fits=6000)
    assert found == {
        "error": None,
        "replays": 2,
        "running": [0],
        "waiting": [1],
        "tokens": [4000],
        "bound": [False],  # KV memory was refused to nobody
        "preempted": [1],
        "preemptions": 1,
        "incidents": [["activation_refused", 1, True]],
        "ended": [[0, "completed", 3], [1, "completed", 3]],
    }


def test_a_step_that_still_does_not_fit_is_the_end() -> None:
    found = job("engine_out_of_activations", requests=2, fits=2000)
    error = found.pop("error")
    assert error.startswith(
        "the activations of a step of 4000 tokens did not fit, even after the youngest sequence "
        "was preempted: CUDA out of memory."
    )
    assert found == {
        "replays": 2,
        "running": [0],
        "waiting": [1],
        "tokens": [],
        "bound": [],
        "preempted": [],
        "preemptions": 1,
        "incidents": [["activation_refused", 1, True]],
        "ended": [[0, "unfinished", 0], [1, "unfinished", 0]],
    }


def test_one_sequence_alone_has_nobody_to_preempt() -> None:
    found = job("engine_out_of_activations", requests=1, fits=2000)
    assert found["error"].startswith("the activations of one sequence did not fit: CUDA out of")
    assert (found["replays"], found["preemptions"]) == (1, 0)
    assert found["incidents"] == [["activation_refused", None, True]]


# MiB beside the KV budget: so little that segments make the allocator retry (a buffer that grows
# would end the engine in a few steps).
SLACK_MIB = {"bucketed": 24, "contiguous_oracle": 24, "contiguous_grow": 64, "paged": 24}


@pytest.mark.parametrize("alloc_conf", ["", EXPANDABLE], ids=["segments", "expandable"])
@pytest.mark.parametrize("strategy", SLACK_MIB)
def test_skipped_replays_would_have_changed_nothing(strategy: str, alloc_conf: str) -> None:
    """Segments, blocks, peaks, retries, driver calls and times of a run that skips none."""
    settings = {
        "strategy": strategy, "alloc_conf": alloc_conf, "slack_mib": SLACK_MIB[strategy]
    }  # fmt: skip
    skipping, repeating = (job("workload", ages=ages, **settings) for ages in (False, True))
    assert repeating["same"] == skipping["same"]
    assert repeating["steps"] == skipping["steps"]
    assert repeating["replays"] >= repeating["steps"]
    assert (skipping["retries"] > 0) == (SLACK_MIB[strategy] == 24 and not alloc_conf)
    if strategy != "contiguous_grow":  # whose every step moves memory
        assert skipping["replays"] < repeating["replays"]
