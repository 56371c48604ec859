"""Memory maps of the runs that kept a snapshot of the allocator (memory_snapshot=true)."""

from __future__ import annotations

from collections.abc import Sequence

from bench.errors import SettingError
from bench.report.drawing import Picture, render
from bench.report.groups import labels
from bench.report.results import Run
from bench.snapshots.before import read_history
from bench.snapshots.memory_map import MemoryMap, draw_memory_maps
from bench.snapshots.plain_pickle import BROKEN, load_plain

SNAPSHOT = "memory_snapshot.pickle"
MOST_BYTES = 512 << 20
"""Of a snapshot: drawing takes seconds up to there."""


def map_picture(workload: str, slug: str, group: Sequence[Run]) -> Picture | None:
    """The maps of a workload's runs, side by side at one scale; None where none kept a snapshot."""
    maps = [
        found
        for run, label in zip(group, labels(group), strict=True)
        if (found := _map(run.each[0], label)) is not None
    ]
    if not maps:
        return None
    names = ", ".join(each.title for each in maps)
    return render(
        f"memory_map-{slug}",
        f"{workload}: the caching allocator's memory, event by event: each block from its "
        "allocation to its end, segment upon segment. Grey is reserved and free, white is not "
        "reserved.",
        f"Memory maps of {names}",
        lambda: draw_memory_maps(maps, xlabel="allocations and frees"),
    )


def _map(run: Run, label: str) -> MemoryMap | None:
    """None, with a note where there is a snapshot, where it cannot be drawn."""
    path = run.path / SNAPSHOT
    if not path.is_file():
        return None
    if path.stat().st_size > MOST_BYTES:
        run.notes.append(f"{SNAPSHOT} is too large to draw: `fragbench replay` takes it")
        return None
    try:
        return MemoryMap(label, read_history(load_plain(path)))
    except (*BROKEN, SettingError):
        run.notes.append(f"{SNAPSHOT} could not be read")
        return None
