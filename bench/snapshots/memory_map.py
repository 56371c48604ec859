"""Memory over time, as a picture: each block a rectangle from its allocation to its end.

    history = read_history(torch.cuda.memory._snapshot())       # bench/snapshots/before.py
    with style(LIGHT):                                           # bench/report/drawing.py
        path.write_bytes(png(draw_memory_maps([MemoryMap("default", history)])))

Along x go events; up goes memory, segment upon segment. Blocks are coloured by size, or by the
names that a program gave them (`torch.cuda.memory._set_memory_metadata`); grey is reserved and
free, white is not reserved. Above each map are the bytes reserved (a line) and allocated (dark).
The pixels are exact areas: a million events take seconds, and what is too small to be seen still
counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from bench.report.drawing import legend_below, new_figure
from bench.snapshots.coverage import Column
from bench.snapshots.map_kinds import kinds_of
from bench.snapshots.map_panel import MapPanel, legend_of_totals
from bench.snapshots.trace import History

PIXELS = 1300


@dataclass(frozen=True, slots=True, eq=False)
class MemoryMap:
    """What a picture shows. `times` has a place on the x axis for each row of the history, in
    rising order; None numbers them."""

    title: str
    history: History
    times: Column | None = None


def draw_memory_maps(
    maps: Sequence[MemoryMap], *, columns: int = 2, xlabel: str = "event", height_in: float = 3.4
) -> Figure:
    """All of them at one scale, so many side by side, with one legend. `height_in` is a row's."""
    columns = min(columns, len(maps))
    rows = -(-len(maps) // columns)
    panels = [MapPanel(each.title, each.history, _times(each)) for each in maps]
    kinds = kinds_of([each.history.labels for each in maps])
    floor = min(panel.floor_bytes for panel in panels)
    height = max(floor + 1.0, *(panel.height_bytes for panel in panels))
    peak_bytes = max(1.0, *(panel.peak_bytes for panel in panels))
    figure = new_figure(height_in * rows + 0.4)
    grid = figure.subplots(2 * rows, columns, squeeze=False, height_ratios=[1, 3.4] * rows)
    for place, (totals, addresses) in enumerate(zip(grid[::2].flat, grid[1::2].flat, strict=True)):
        if place >= len(panels):
            totals.set_axis_off()
            addresses.set_axis_off()
            continue
        panels[place].draw_map(addresses, floor, height, kinds, PIXELS // columns)
        panels[place].draw_totals(totals, peak_bytes)
        totals.set_xlim(addresses.get_xlim())
        addresses.set_xlabel(xlabel)
        if place % columns == 0:
            totals.set_ylabel("GiB")
            addresses.set_ylabel("segment upon segment, GiB")
    shown = {place for panel in panels for place in panel.kinds_in(kinds)}
    refused = any(panel.refuses for panel in panels)
    handles = [*kinds.legend(shown), *legend_of_totals(refused=refused)]
    legend_below(figure, handles, [str(handle.get_label()) for handle in handles])
    return figure


def _times(each: MemoryMap) -> Column:
    return np.arange(len(each.history.rows), dtype=float) if each.times is None else each.times
