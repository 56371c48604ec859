"""Graphs: which batch sizes are captured, and what their pools keep."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.bench.sources.support import EXPANDABLE, job

POOLS = pytest.mark.parametrize("pool", ["shared", "own"])


@POOLS
@pytest.mark.parametrize("alloc_conf", ["", EXPANDABLE], ids=["segments", "expandable"])
def test_a_batch_size_is_captured_once_and_its_pool_stays(alloc_conf: str, pool: str) -> None:
    settings = {"step": 8, "largest": 16, "pool": pool}
    # 1, 2 and 3 are rounded up to 1, 2 and 4, 5 to 8, 9 to 16; 17 runs without.
    batches = [1, 1, 2, 3, 4, 5, 8, 9, 16, 17]
    found = job("graphs", settings=settings, batches=batches, alloc_conf=alloc_conf)
    assert found["prompts"] == 0
    assert found["captures"] == [1, 1, 2, 3, 3, 4, 4, 5, 5, 5]
    # A pool has at least a segment for small blocks, of 2 MiB.
    assert found["kept"] >= (5 if pool == "own" else 1) * (2 << 20)
    buffers = (1 + 2 + 4 + 8 + 16) * (3 * 8 + 512 * 2)
    pools = found["held"] - buffers
    assert 0 <= found["kept"] - pools <= 2 << 20  # and a segment with the static buffers
    assert (found["left"], found["reserved"]) == (0, 0)


@POOLS
def test_every_size_is_a_shape_of_its_own_and_the_least_used_is_dropped(pool: str) -> None:
    settings = {"step": 1, "most": 2, "pool": pool}
    found = job("graphs", settings=settings, batches=[3, 5, 3, 7, 3, 5])
    assert found["captures"] == [1, 2, 2, 3, 3, 4]  # 7 drops 5, which drops 7
    assert found["dropped"] == 2
    assert (found["left"], found["reserved"]) == (0, 0)


def test_a_shared_pool_grows_by_what_a_capture_misses_in_it() -> None:
    """A smaller batch captured after a larger one finds all that it needs."""
    batches, settings = [16, 8, 4, 2, 1], {"step": 8, "largest": 16}
    shared = job("graphs", settings=settings, batches=batches)["held_by_step"]
    own = job("graphs", settings=settings | {"pool": "own"}, batches=batches)["held_by_step"]
    assert shared[0] == own[0]
    buffers = [size * (3 * 8 + 512 * 2) for size in (8, 4, 2, 1)]
    assert [b - a for a, b in pairwise(shared)] == buffers
    assert all(b - a >= n + (2 << 20) for (a, b), n in zip(pairwise(own), buffers, strict=True))


@POOLS
def test_a_capture_beyond_the_room_is_refused_once(pool: str) -> None:
    """There is room for the buffers alone: what a shared pool grew by stays in it, and counts."""
    settings = {"largest": 16, "pool": pool}
    limit = 16 * (3 * 8 + 512 * 2)
    found = job("graphs", settings=settings, batches=[16, 16], limit=limit)
    assert (found["captures"], found["refused"]) == ([0, 0], 1)
    assert found["held"] == (found["kept"] if pool == "shared" else 0)
    assert (found["left"], found["reserved"]) == (0, 0)
