"""Graphs: which batch sizes are captured, and what their pools keep."""

from __future__ import annotations

import pytest

from tests.bench.sources.support import EXPANDABLE, job


@pytest.mark.parametrize("alloc_conf", ["", EXPANDABLE], ids=["segments", "expandable"])
def test_a_batch_size_is_captured_once_and_its_pool_stays(alloc_conf: str) -> None:
    settings = {"step": 8, "largest": 16}
    # 1, 2 and 3 are rounded up to 1, 2 and 4, 5 to 8, 9 to 16; 17 runs without.
    batches = [1, 1, 2, 3, 4, 5, 8, 9, 16, 17]
    found = job("graphs", settings=settings, batches=batches, alloc_conf=alloc_conf)
    assert found["prompts"] == 0
    assert found["captures"] == [1, 1, 2, 3, 3, 4, 4, 5, 5, 5]
    # A pool has at least a segment for small blocks and one for large ones: 2 and 20 MiB.
    assert found["kept"] >= 5 * (2 << 20)
    buffers = (1 + 2 + 4 + 8 + 16) * (3 * 8 + 512 * 2)
    pools = found["held"] - buffers
    assert 0 <= found["kept"] - pools <= 2 << 20  # and a segment with the static buffers
    assert (found["left"], found["reserved"]) == (0, 0)


def test_every_size_is_a_shape_of_its_own_and_the_least_used_is_dropped() -> None:
    found = job("graphs", settings={"step": 1, "most": 2}, batches=[3, 5, 3, 7, 3, 5])
    assert found["captures"] == [1, 2, 2, 3, 3, 4]  # 7 drops 5, which drops 7
    assert found["dropped"] == 2
    assert (found["left"], found["reserved"]) == (0, 0)
