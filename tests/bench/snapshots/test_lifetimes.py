"""Where blocks and segments are in a memory map, and for how long."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.snapshots.before import read_history
from bench.snapshots.coverage import coverage
from bench.snapshots.lifetimes import Lifetimes, stack
from bench.snapshots.shelf import Shelf
from tests.bench.snapshots.support import MIB, block, event, freed, segment


def stacked(trace: list[dict[str, Any]], *segments: dict[str, Any]) -> Any:
    history = read_history({"device_traces": [trace], "segments": list(segments)})
    return stack(history, np.arange(len(history.rows), dtype=float))


def rectangles(lifetimes: Lifetimes) -> list[tuple[float, float, float, float]]:
    """(begin, end, bottom, size) in events and MiB, in order."""
    columns = (lifetimes.begin, lifetimes.end, lifetimes.bottom / MIB, lifetimes.size / MIB)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def test_a_block_lies_in_its_segment_and_ends_when_its_free_completes() -> None:
    trace = [event("segment_alloc", 1000, 20), event("alloc", 1005, 5), *freed(1005, 5)]
    found = stacked(trace, segment(1000, 20))
    assert rectangles(found.segments) == [(0, 4, 0, 20)]
    assert rectangles(found.blocks) == [(1, 3, 5, 5)]


def test_a_segment_takes_the_place_of_one_that_ended() -> None:
    trace = [event("segment_free", 0, 20), event("segment_alloc", 500, 10)]
    found = stacked(trace, segment(100, 30, block(100, 30)), segment(500, 10))
    # Nothing happens in the one at 100: it is lowest. The new one lies where the other was.
    assert rectangles(found.segments) == [(0, 0, 30, 20), (0, 2, 0, 30), (1, 2, 30, 10)]


def test_parts_of_an_expandable_segment_keep_their_places() -> None:
    trace = [event("segment_map", 100, 20), event("segment_map", 120, 20),
             event("alloc", 110, 20), event("segment_unmap", 130, 10)]  # fmt: skip
    found = stacked(trace, segment(100, 30, block(110, 20), is_expandable=True))
    assert rectangles(found.segments) == [(0, 4, 0, 20), (1, 3, 20, 20), (3, 4, 20, 10)]
    assert rectangles(found.blocks) == [(2, 4, 10, 20)]


def test_blocks_outside_what_is_known_still_have_a_place() -> None:
    found = stacked([event("alloc", 7, 5), *freed(7, 5), event("alloc", 90, 6)])
    assert rectangles(found.blocks) == [(0, 2, 0, 5), (3, 4, 0, 6)]


def test_a_shelf_gives_out_its_lowest_place_that_fits() -> None:
    shelf = Shelf()
    places = [shelf.take(size) for size in (5, 10, 5)]
    shelf.give(5, 10)
    assert (*places, shelf.take(11), shelf.take(4)) == (0, 5, 15, 20, 5)


def test_a_pixel_has_the_area_that_rectangles_cover_in_it() -> None:
    # [0.5, 2) x [0.25, 1.5), and [1, 3) x [1, 2), in 2 rows of 3.
    left, right = np.array([0.5, 1.0]), np.array([2.0, 3.0])
    bottom, top = np.array([0.25, 1.0]), np.array([1.5, 2.0])
    found = coverage(left, right, bottom, top, (2, 3))
    assert np.allclose(found, [[0.375, 0.75, 0], [0.25, 1.5, 1]])


def test_what_lies_outside_the_picture_is_cut_off() -> None:
    edges = (np.array([-5.0]), np.array([9.0]), np.array([-1.0]), np.array([0.5]))
    assert np.allclose(coverage(*edges, (2, 3)), [[0.5, 0.5, 0.5], [0, 0, 0]])
