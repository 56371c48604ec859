"""Contiguous buffers in PyTorch's own allocator, on the virtual GPU."""

from __future__ import annotations

from typing import Any

import pytest

from tests.virtual_gpu import run_on_virtual_gpu

EXPANDABLE = "expandable_segments:True"


def job(name: str, alloc_conf: str = "", **payload: Any) -> Any:
    return run_on_virtual_gpu(f"tests.backends.caching_jobs:{name}", payload, alloc_conf=alloc_conf)


def test_fragmentation_refuses_what_free_memory_would_hold() -> None:
    """The card has 60 MiB, all of it in one segment: [20 free][20 in use][20 free].

    40 MiB are free, and 40 MiB are asked for. No block has them, the driver has nothing left, and
    a segment in use cannot be given back: an OutOfMemoryError with all the memory there.
    """
    assert job("checkerboard", card_mib=60) == {
        "free_mib": 40,
        "largest_free_mib": 20,
        "fragmentation": 0.5,
        "fits_an_empty_budget": True,
        "granted": False,
        "free_mib_after": 40,
        "ooms": 1,
        "retries": 1,
    }


def test_expandable_segments_serve_the_same_request() -> None:
    """The pages of both holes are unmapped and mapped again in a row, behind the block in use."""
    assert job("checkerboard", EXPANDABLE, card_mib=60) == {
        "free_mib": 40,
        "largest_free_mib": 20,
        "fragmentation": 0.5,
        "fits_an_empty_budget": True,
        "granted": True,
        "free_mib_after": 0,
        "ooms": 0,
        "retries": 1,
    }


def test_a_card_with_room_beside_the_budget_hides_fragmentation() -> None:
    """With 40 MiB more the driver makes a segment of 40: reserved is 100 for 60 of tensors."""
    roomy = job("checkerboard", card_mib=100)
    assert (roomy["granted"], roomy["free_mib_after"], roomy["ooms"]) == (True, 0, 0)
    # One page less, and it is refused as before.
    assert job("checkerboard", card_mib=98)["granted"] is False


def test_a_budget_is_never_exceeded_by_blocks_that_were_not_split() -> None:
    budget_bytes = (59 << 20) + (768 << 10)
    assert job("unsplit_blocks", budget_bytes=budget_bytes) == {
        "requested_mib": 39, "allocated_mib": 40, "third": False, "left_behind": 0,
    }  # fmt: skip
    assert job("unsplit_blocks", budget_bytes=60 << 20)["third"] is True
    # Expandable segments split off half a MiB too, so that three are 58.5 MiB.
    assert job("unsplit_blocks", EXPANDABLE, budget_bytes=budget_bytes)["allocated_mib"] == 58.5


def test_a_budget_is_never_exceeded_by_sizes_that_are_rounded_up() -> None:
    assert job("rounded_up") == {"granted": True, "allocated_mib": 66}
    # Half of the way from 64 to 128 MiB is 96: more than the budget of 90.
    rounded = job("rounded_up", "roundup_power2_divisions:2")
    assert rounded == {"granted": False, "allocated_mib": 0}


def test_a_budget_is_never_exceeded_by_oversize_blocks() -> None:
    assert job("oversize_block", "max_split_size_mb:20") == {
        "first": True, "rounding_mib": 19, "free_mib": 0, "second": False,
    }  # fmt: skip
    assert job("oversize_block")["second"] is True


@pytest.mark.parametrize("alloc_conf", ["", EXPANDABLE])
def test_a_group_that_fails_half_way_leaves_nothing_behind(alloc_conf: str) -> None:
    found = job("half_a_group", alloc_conf)
    assert found == {"refused": True, "allocated": 0, "three": True}


@pytest.mark.parametrize("alloc_conf", ["", EXPANDABLE])
def test_only_what_came_after_the_start_is_counted(alloc_conf: str) -> None:
    assert job("others_tensors", alloc_conf) == {"mib": [30, 30, 20], "empty_mib": [0, 0, 50]}
