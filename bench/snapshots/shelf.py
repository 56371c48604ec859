"""Where things lie in a memory map: the places that it gives out, and what needs one of its own."""

from __future__ import annotations

from bisect import insort

from bench.snapshots.trace import Action, History


class Shelf:
    """Room without an end, given out from its lowest place that fits."""

    def __init__(self) -> None:
        self._taken: list[tuple[int, int]] = []

    def take(self, size: int) -> int:
        """The bottom of so many bytes."""
        bottom = 0
        for start, end in self._taken:
            if start - bottom >= size:
                break
            bottom = end
        insort(self._taken, (bottom, bottom + size))
        return bottom

    def give(self, bottom: int, size: int) -> None:
        """Takes back what take(size) gave."""
        self._taken.remove((bottom, bottom + size))


def stretches(history: History) -> list[tuple[int, int]]:
    """[start, end) of the addresses that expandable segments ever had, in order."""
    parts = [
        (row["address"].item(), row["address"].item() + row["size"].item())
        for rows in (history.segments, history.rows[history.rows["action"] == Action.SEGMENT_ALLOC])
        for row in rows[rows["expandable"]]
    ]
    found: list[tuple[int, int]] = []
    for start, end in sorted(parts):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found
