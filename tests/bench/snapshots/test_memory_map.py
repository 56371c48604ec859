"""The picture: colours are where the memory is."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import to_rgb

from bench.report.drawing import png, style
from bench.report.palette import LIGHT
from bench.snapshots.before import read_history
from bench.snapshots.map_kinds import FREE_COLOUR, LABEL_COLOURS, SIZE_COLOURS, kinds_of
from bench.snapshots.map_panel import SHADES
from bench.snapshots.memory_map import MemoryMap, draw_memory_maps
from bench.snapshots.trace import History
from tests.bench.snapshots.support import block, event, freed, segment


def history(trace: list[dict[str, Any]], *segments: dict[str, Any]) -> History:
    return read_history({"device_traces": [trace], "segments": list(segments)})


# A segment of 40 MiB; half of it is a block from the third event on.
HALF = history(
    [event("segment_alloc", 0, 40), event("alloc", 0, 5), *freed(0, 5), event("alloc", 0, 20),
     event("alloc", 30, 1), *freed(30, 1)],
    segment(0, 40, block(0, 20)),
)  # fmt: skip


def picture(each: History) -> Any:
    """The map's pixels, rows from the bottom."""
    figure = draw_memory_maps([MemoryMap("a", each)])
    return np.asarray(figure.axes[1].images[0].get_array())


def near(pixel: Any, colour: str) -> bool:
    """A block may be paler than its colour: by as much in each part of the way to white."""
    base = np.array(to_rgb(colour))
    paler = [base + (1 - base) * shade for shade in SHADES]
    return any(np.allclose(pixel, each, atol=0.01) for each in paler)


def test_blocks_have_the_colour_of_their_size_and_what_is_free_is_grey() -> None:
    pixels = picture(HALF)
    rows, columns, _ = pixels.shape
    late = int(columns * 6.5 / 8)
    assert near(pixels[rows // 4, late], SIZE_COLOURS[2])
    assert near(pixels[rows * 3 // 5, late], FREE_COLOUR)
    assert near(pixels[rows // 4, int(columns * 3.5 / 8)], FREE_COLOUR)


def test_names_give_colours_where_a_program_gave_names() -> None:
    named = history(
        [event("segment_alloc", 0, 40), event("alloc", 0, 20, user_metadata="weights"),
         event("alloc", 20, 10)],
        segment(0, 40, block(0, 20), block(20, 10)),
    )  # fmt: skip
    pixels = picture(named)
    assert near(pixels[pixels.shape[0] // 4, -1], LABEL_COLOURS[0])
    assert kinds_of([named.labels]).names == ("no name", "weights")


def test_more_names_than_colours_share_one() -> None:
    many = tuple(f"name {number}" for number in range(12))
    kinds = kinds_of([("", *many)])
    assert len(kinds.names) == len(kinds.colours) == 9
    assert kinds.labels is not None
    assert kinds.labels["name 11"] == 8


def test_any_number_of_maps_of_any_size_is_a_picture() -> None:
    empty = history([], segment(0, 20, block(0, 5)))
    nothing = history([event("oom", 0, 5)])
    with style(LIGHT):
        for count in (1, 3):
            maps = [MemoryMap("a title", each) for each in (HALF, empty, nothing)[:count]]
            assert png(draw_memory_maps(maps))[:4] == b"\x89PNG"
        assert png(draw_memory_maps([MemoryMap("nothing", nothing)]))[:4] == b"\x89PNG"
