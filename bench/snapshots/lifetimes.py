"""When each block and each segment was there, and where: the rectangles of a memory map.

Memory is drawn segment upon segment, whatever its addresses are: a new segment goes to the lowest
place that has room, and gives it back at its end, so that the picture is hardly higher than the
most that was reserved. Expandable segments grow and shrink within a stretch of addresses: that has
one place for as long as anything in it is mapped.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.snapshots.shelf import Shelf, stretches
from bench.snapshots.trace import Action, History

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Lifetimes:
    """Rectangles: the times in [begin, end), and the bytes of the picture in [bottom, bottom +
    size). What is there at the history's end ends with it. `label` is a place in the history's
    labels."""

    begin: Column
    end: Column
    bottom: Column
    size: Column
    label: NDArray[np.int64]
    outlined: NDArray[np.bool_]
    """Whether an edge means anything: not where memory was mapped into a larger segment."""

    @property
    def top(self) -> Column:
        return self.bottom + self.size


class Stacked(NamedTuple):
    """A history's blocks, which end when they can be used again, and its segments."""

    blocks: Lifetimes
    segments: Lifetimes


class _Life(NamedTuple):
    begin: float
    address: int
    size: int
    bottom: int
    label: int = 0
    outlined: bool = True


_Rectangle = tuple[float, float, int, int, int, bool]


def _rectangle(life: _Life, end: float) -> _Rectangle:
    return life.begin, end, life.bottom, life.size, life.label, life.outlined


def end_of(times: Column) -> float:
    """When a history with such times ends: a step after its last event."""
    return float(times[-1]) + 1 if len(times) else 1.0


def stack(history: History, times: Column) -> Stacked:
    """The rectangles of a history. `times` has one for each of its rows."""
    stacking = _Stacking(history)
    start = float(times[0]) if len(times) else 0.0
    for address, size, _, _, expandable in _still_ones_first(history):
        stacking.reserve(start, address, size, expandable)
    for address, size, _, _, _, label, _ in history.blocks.tolist():
        stacking.hold(start, address, size, label)
    for time, row in zip(times.tolist(), history.rows.tolist(), strict=True):
        action, address, size, _, _, label, _, expandable = row
        if action == Action.ALLOC:
            stacking.hold(time, address, size, label)
        elif action == Action.FREE_COMPLETED:
            stacking.free(time, address)
        elif action == Action.SEGMENT_ALLOC:
            stacking.reserve(time, address, size, expandable)
        elif action == Action.SEGMENT_FREE:
            stacking.release(time, address, size, expandable)
    return stacking.done(end_of(times))


def _still_ones_first(history: History) -> list[tuple[int, int, int, int, bool]]:
    """The segments that were there before. Those in which nothing happens go to the bottom."""
    rows = history.rows[history.rows["action"] != Action.OOM]
    touched = np.sort(rows["address"])
    segments = history.segments
    happens = np.searchsorted(touched, segments["address"]) < np.searchsorted(
        touched, segments["address"] + segments["size"]
    )
    found: list[tuple[int, int, int, int, bool]] = segments[
        np.argsort(happens, kind="stable")
    ].tolist()
    return found


class _Stacking:
    """What is held and reserved at one time, and where that is in the picture."""

    def __init__(self, history: History) -> None:
        self._shelf = Shelf()
        self._stretches = stretches(history)
        self._stretch_starts = [start for start, _ in self._stretches]
        self._bottoms: dict[int, int] = {}  # of stretches, by their start
        self._segments: dict[int, _Life] = {}
        self._starts: list[int] = []  # of segments, sorted
        self._blocks: dict[int, _Life] = {}
        self._loose: set[int] = set()  # blocks in no segment that is known
        self._ended: tuple[list[_Rectangle], list[_Rectangle]] = [], []

    def reserve(self, time: float, address: int, size: int, expandable: bool) -> None:
        if address in self._segments:
            self.release(time, address, self._segments[address].size, expandable)
        bottom = self._bottom(address) if expandable else self._shelf.take(size)
        self._segments[address] = _Life(time, address, size, bottom, outlined=not expandable)
        insort(self._starts, address)

    def release(self, time: float, address: int, size: int, expandable: bool) -> None:
        """Of an expandable segment any part can go; the rest begins anew."""
        for start in self._overlapping(address, address + size):
            life = self._segments.pop(start)
            self._starts.remove(start)
            self._ended[1].append(_rectangle(life, time))
            if not expandable:
                self._shelf.give(life.bottom, life.size)
                continue
            for low, high in ((start, address), (address + size, start + life.size)):
                if low < high:
                    bottom = life.bottom + low - start
                    self._segments[low] = _Life(time, low, high - low, bottom, outlined=False)
                    insort(self._starts, low)
        if expandable:
            self._forget(address)

    def hold(self, time: float, address: int, size: int, label: int) -> None:
        self.free(time, address)
        place = bisect_right(self._starts, address) - 1
        segment = self._segments[self._starts[place]] if place >= 0 else None
        if segment and address < segment.address + segment.size:
            bottom = segment.bottom + address - segment.address
        else:
            bottom = self._shelf.take(size)
            self._loose.add(address)
        self._blocks[address] = _Life(time, address, size, bottom, label)

    def free(self, time: float, address: int) -> None:
        life = self._blocks.pop(address, None)
        if life is None:
            return
        self._ended[0].append(_rectangle(life, time))
        if address in self._loose:
            self._loose.remove(address)
            self._shelf.give(life.bottom, life.size)

    def done(self, end: float) -> Stacked:
        """Everything, with `end` as the end of what is still there."""
        for ended, live in zip(self._ended, (self._blocks, self._segments), strict=True):
            ended += [_rectangle(life, end) for life in live.values()]
        return Stacked(*map(_table, self._ended))

    def _bottom(self, address: int) -> int:
        """Where an address of an expandable segment is; its stretch takes its place if it has
        none."""
        start, end = self._stretches[bisect_right(self._stretch_starts, address) - 1]
        if start not in self._bottoms:
            self._bottoms[start] = self._shelf.take(end - start)
        return self._bottoms[start] + address - start

    def _forget(self, address: int) -> None:
        """Gives back the place of a stretch that has nothing mapped."""
        start, end = self._stretches[bisect_right(self._stretch_starts, address) - 1]
        if start in self._bottoms and not self._overlapping(start, end):
            self._shelf.give(self._bottoms.pop(start), end - start)

    def _overlapping(self, start: int, end: int) -> list[int]:
        """The starts of segments that have a part of [start, end)."""
        first = max(bisect_right(self._starts, start) - 1, 0)
        found = self._starts[first : bisect_right(self._starts, end - 1)]
        return [each for each in found if each + self._segments[each].size > start]


def _table(found: list[_Rectangle]) -> Lifetimes:
    begin, end, bottom, size, label, outlined = np.array(found, np.float64).reshape(-1, 6).T
    return Lifetimes(begin, end, bottom, size, label.astype(np.int64), outlined > 0)
