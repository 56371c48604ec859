"""Exercises a and b on the real allocator: what truly fails, what does not, and what it costs."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from bench.exercise.fragment import summary_lines
from bench.exercise.fragment_finding import finding
from bench.exercise.fragment_layouts import layouts
from tests.virtual_gpu import run_on_virtual_gpu, skip_without_virtual_gpu

MIB = 1 << 20
GPU = "rtx4090"
DEFAULT, EXPANDABLE = "", "expandable_segments:True"
SIZES = {"request_mib": 1024, "large_mib": 64, "small_mib": 8, "earlier_mib": 1024}
BYTES = {name.replace("_mib", "_bytes"): size * MIB for name, size in SIZES.items()}


@pytest.fixture(autouse=True)
def on_a_virtual_gpu() -> None:
    skip_without_virtual_gpu()


@cache
def fragmented(layout: str, alloc_conf: str) -> Any:
    payload = {"layout": layout, **BYTES}
    job = "bench.exercise.fragment_job:fragment"
    return run_on_virtual_gpu(job, payload, alloc_conf=alloc_conf, gpu=GPU)


@pytest.mark.parametrize("layout", ["own", "left", "shared"])
@pytest.mark.parametrize("alloc_conf", [DEFAULT, EXPANDABLE])
def test_ten_times_the_request_is_free_and_the_driver_has_less_than_it(
    layout: str, alloc_conf: str
) -> None:
    before = fragmented(layout, alloc_conf)["before"]
    assert before["free_bytes"] > 10 * BYTES["request_bytes"]
    assert before["driver_free_bytes"] < BYTES["request_bytes"]
    assert before["num_alloc_retries"] == before["num_ooms"] == 0


def test_settings_that_pytorch_refuses_are_named() -> None:
    with pytest.raises(pytest.fail.Exception, match="alloc_conf=nothing:1 cannot be used"):
        fragmented("own", "nothing:1")


def test_every_other_large_tensor_does_not_do_it() -> None:
    """Each is a segment of its own, which goes back to the driver in the retry."""
    result = fragmented("own", DEFAULT)
    assert result["refusal"] is None
    assert result["before"]["non_releasable_bytes"] == 0
    assert result["after"]["num_alloc_retries"] == 1
    assert result["request"]["driver_calls"]["cudaFree"] == result["freed"]


@pytest.mark.parametrize("layout", ["left", "shared"])
def test_tensors_that_share_segments_make_it_fail(layout: str) -> None:
    result = fragmented(layout, DEFAULT)
    assert "Tried to allocate 1024.00 MiB" in result["refusal"]
    assert result["after"]["num_ooms"] == 1
    assert result["before"]["largest_free_bytes"] < BYTES["request_bytes"]


def test_expandable_segments_help_where_holes_have_whole_pages_and_only_there() -> None:
    assert fragmented("left", EXPANDABLE)["refusal"] is None
    assert fragmented("shared", EXPANDABLE)["refusal"] is not None


@pytest.mark.parametrize("layout", ["own", "left", "shared"])
@pytest.mark.parametrize("alloc_conf", [DEFAULT, EXPANDABLE])
def test_what_is_called_releasable_is_what_goes_back_and_no_more(
    layout: str, alloc_conf: str
) -> None:
    payload = {"layout": layout, **BYTES}
    job = "tests.bench.exercise.exercise_jobs:emptied"
    found = run_on_virtual_gpu(job, payload, alloc_conf=alloc_conf, gpu=GPU)
    before, after = found["counted"], found["emptied"]
    assert before["reserved_bytes"] - after["reserved_bytes"] == before["releasable_bytes"]
    assert after["stuck_bytes"] == before["stuck_bytes"]
    if alloc_conf == DEFAULT:  # torch counts it, too
        assert before["stuck_bytes"] == before["non_releasable_bytes"]
    else:
        assert before["non_releasable_bytes"] is None


def test_memory_summary_is_read_out_as_torch_prints_it() -> None:
    result = fragmented("left", DEFAULT)
    lines = summary_lines(result["memory_summary"])
    before = result["before"]
    for line, key in (
        ("Allocated memory", "allocated_bytes"),
        ("GPU reserved memory", "reserved_bytes"),
        ("Non-releasable memory", "non_releasable_bytes"),
    ):
        number, unit = lines[line].split()
        assert unit == "MiB"
        assert int(number) == before[key] // MIB


def test_a_new_allocation_takes_one_call_or_two_for_each_page_and_one_more() -> None:
    """cuMemCreate and cuMemMap for each page of 20 MiB, cuMemSetAccess for all."""
    payload = {"sizes_bytes": [8 * MIB, 64 * MIB, 200 * MIB], "repeats": 3}
    job = "bench.exercise.fragment_job:measure_costs"
    default, expandable = (
        run_on_virtual_gpu(job, payload, alloc_conf=conf, gpu=GPU) for conf in (DEFAULT, EXPANDABLE)
    )
    assert [cost["new"]["driver_calls"] for cost in default] == [{"cudaMalloc": 1}] * 3
    for cost, pages in zip(expandable, (1, 4, 10), strict=True):
        assert cost["new"]["driver_calls"] == {
            "cuMemCreate": pages, "cuMemMap": pages, "cuMemSetAccess": 1,
        }  # fmt: skip
    for cost in (*default, *expandable):
        assert cost["cached"]["driver_calls"] == {}
        assert 0 < cost["cached"]["host_s"] < 1


def test_the_finding_says_what_happened_also_when_it_is_otherwise() -> None:
    cases = layouts(SIZES)
    results = {case.key: fragmented(case.key, DEFAULT) for case in cases}
    first, second = finding(results, cases, BYTES["request_bytes"])
    assert "was refused with" in first
    assert "served by a retry that gave" in first
    assert "below the request where it was refused, and nowhere else" in second
    hole = {**results["own"], "after": {**results["own"]["after"], "num_alloc_retries": 0}}
    served = {key: {**result, "refusal": None} for key, result in results.items()} | {"own": hole}
    first, second = finding(served, cases, BYTES["request_bytes"])
    assert "refused" not in first
    assert "served at once" in first
    assert "here they do not tell alone" in second
