"""Readings of PyTorch's allocator."""

from __future__ import annotations

import pytest

from bench.device.wheel import find_torch
from tests.bench.device.support import Runner

MIB = 1 << 20
EXPANDABLE = "expandable_segments:True"


def test_statistics_agree_with_pytorchs_own(on_gpu: Runner) -> None:
    found = on_gpu("read_statistics", memory_gib=1)
    stats = found["stats"]
    for name, value in found["flat"].items():
        assert stats[name] == value, name
    assert stats["allocated_bytes"] == 32 * MIB
    # Four segments of their own sizes: blocks above 10 MiB are rounded to 2 MiB only.
    assert (stats["segments"], stats["reserved_bytes"]) == (4, 148 * MIB)
    assert (stats["inactive_splits"], stats["inactive_split_bytes"]) == (0, 0)
    assert stats["driver_free_bytes"] == (1024 - 148) * MIB
    assert found["total_free"] == (1024 - 32) * MIB
    assert found["largest"] == (1024 - 148) * MIB
    assert found["index"] == pytest.approx(1 - (1024 - 148) / (1024 - 32))


def test_what_pytorch_leaves_at_0_under_expandable_segments_is_not_available(
    on_gpu: Runner,
) -> None:
    found = on_gpu("read_statistics", memory_gib=1, alloc_conf=EXPANDABLE)
    stats = found["stats"]
    assert stats["segments"] is None
    assert stats["inactive_splits"] is None
    assert stats["inactive_split_bytes"] is None
    # 148 MiB take eight steps of 20 MiB. The free tail starts after the last block of 16 MiB and
    # grows by 43 whole steps of the driver's 864 MiB.
    assert stats["reserved_bytes"] == 160 * MIB
    assert found["largest"] == (160 - 48 + 43 * 20) * MIB


@pytest.mark.parametrize("alloc_conf", ["expandable_segments:False", EXPANDABLE])
def test_the_largest_free_block_is_the_most_that_needs_nothing_given_back(
    on_gpu: Runner, alloc_conf: str
) -> None:
    states = on_gpu("find_largest_free", seed=3, states=100, memory_gib=2.1, alloc_conf=alloc_conf)
    assert [s["retries"] for s in states] == [0] * len(states)
    assert all(s["retries_for_more"] != 0 for s in states)


def test_held_back_memory_is_not_pytorchs(on_gpu: Runner) -> None:
    found = on_gpu("leave_little", memory_gib=4)
    assert found["before"] == found["after"] == 4096 * MIB
    assert found["during"] == 100 * MIB
    assert found["outcome"] == "refused"
    assert found["error"] == (
        "cannot hold back 4,098 MiB of device memory: 4,096 MiB of 4,096 are free"
    )


def test_driver_calls_are_counted_by_kind(on_gpu: Runner) -> None:
    found = on_gpu("count_driver_calls")
    changed = found["changed"]
    assert (changed["cudaMalloc"], changed["cudaFree"], changed["device_synchronize"]) == (2, 2, 1)
    assert "cuMemCreate" not in changed
    assert found["peak"] == 40 * MIB


def test_expandable_segments_are_counted_as_mappings(on_gpu: Runner) -> None:
    changed = on_gpu("count_driver_calls", alloc_conf=EXPANDABLE)["changed"]
    assert changed["cuMemCreate"] == changed["cuMemMap"] == changed["cuMemSetAccess"] == 2
    assert changed["cuMemUnmap"] == changed["cuMemRelease"] == 2
    assert "cudaMalloc" not in changed


def test_this_pytorch_has_the_counters_that_are_read() -> None:
    assert find_torch().cuda_major in (12, 13)
