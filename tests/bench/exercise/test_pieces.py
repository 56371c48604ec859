"""What of a segment is allocated, could go back to the driver, or is stuck."""

from __future__ import annotations

from typing import Any

import pytest

from bench.exercise.pieces import ALLOCATED, RELEASABLE, STUCK, Piece, pieces_of, total

MIB = 1 << 20


def segment(*blocks: tuple[int, bool], expandable: bool = False, pool: str = "large") -> Any:
    """Of blocks of so many MiB, each free or not."""
    return {
        "total_size": sum(mib for mib, _ in blocks) * MIB,
        "segment_type": pool,
        "is_expandable": expandable,
        "blocks": [
            {"size": mib * MIB, "state": "inactive" if free else "active_allocated"}
            for mib, free in blocks
        ],
    }


def mib(*pieces: tuple[int, str]) -> list[Piece]:
    return [Piece(size * MIB, kind) for size, kind in pieces]


def test_a_segment_without_tensors_can_go_back_as_a_whole() -> None:
    assert pieces_of(segment((20, True))) == mib((20, RELEASABLE))


def test_one_tensor_keeps_all_of_its_segment() -> None:
    found = pieces_of(segment((100, True), (2, False), (898, True)))
    assert found == mib((100, STUCK), (2, ALLOCATED), (898, STUCK))


def test_a_block_that_waits_for_another_stream_is_in_use() -> None:
    waiting = segment((10, True), (10, False))
    waiting["blocks"][1]["state"] = "active_pending_free"
    assert pieces_of(waiting) == mib((10, STUCK), (10, ALLOCATED))


def test_of_an_expandable_segment_whole_pages_go_back() -> None:
    """Pages of 20 MiB: of the hole from 16 to 116 MiB those from 20 to 100."""
    found = pieces_of(segment((16, False), (100, True), (4, False), expandable=True))
    assert found == mib((16, ALLOCATED), (4, STUCK), (80, RELEASABLE), (16, STUCK), (4, ALLOCATED))


def test_a_hole_within_a_page_is_stuck_and_small_pools_have_smaller_pages() -> None:
    hole = ((9, False), (2, True), (9, False))
    assert total(pieces_of(segment(*hole, expandable=True)), RELEASABLE) == 0
    small = segment((2, False), (2, True), expandable=True, pool="small")
    assert pieces_of(small) == mib((2, ALLOCATED), (2, RELEASABLE))


@pytest.mark.parametrize("expandable", [False, True])
def test_pieces_add_up_to_the_segment(expandable: bool) -> None:
    mixed = segment((3, False), (50, True), (1, False), (46, True), expandable=expandable)
    assert sum(piece.nbytes for piece in pieces_of(mixed)) == mixed["total_size"]
