"""Which freed segments a program gave back itself, and which its allocator did for want of memory.

Both look alike in a history: segments are freed. An allocation that does not fit frees what is
cached and then takes a new segment, or gives up; a program empties the cache, or drops a private
pool. Only the latter is a part of what the program asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.snapshots.trace import Action, History


class _Run(NamedTuple):
    """Segments freed one after the other: the rows [first, last], and the row of what may have
    caused it (None if nothing can)."""

    first: int
    last: int
    cause: int | None


def released_by_program(history: History) -> dict[int, list[int]]:
    """By the last row of each such run of freed segments: the pools that they were of, private ones
    first.

    The allocator records both of its own doings, the free and the new segment, with one call stack.
    Without call stacks it had to free something if the new segment did not fit in what the card is
    known to have, or would have been more than ever was reserved (in a program that is not known
    to empty its cache).
    """
    reserved = reserved_after(history)
    verdicts = {run: _by_program(history, reserved, run) for run in _runs(history.rows["action"])}
    empties = any(verdicts.values())
    return {
        run.last: sorted({int(p) for p in history.rows["pool"][run.first : run.last + 1]})[::-1]
        for run, sure in verdicts.items()
        if (empties if sure is None else sure)
    }


def reserved_after(history: History) -> NDArray[np.int64]:
    """Bytes that were reserved after each row."""
    actions, sizes = history.rows["action"], history.rows["size"].astype(np.int64)
    change = sizes * (actions == Action.SEGMENT_ALLOC) - sizes * (actions == Action.SEGMENT_FREE)
    return np.asarray(int(history.segments["size"].sum()) + change.cumsum(), np.int64)


def room_bytes(history: History, reserved: NDArray[np.int64]) -> int | None:
    """What the process could have had of its card, as known from the last time that it ran out."""
    refused = np.flatnonzero(history.rows["action"] == Action.OOM)
    if not len(refused) or not history.rows["address"][refused[-1]]:
        return None
    return int(reserved[refused[-1]]) + int(history.rows["address"][refused[-1]])


def _by_program(history: History, reserved: NDArray[np.int64], run: _Run) -> bool | None:
    """None if it cannot be told."""
    if run.cause is None:
        return True
    freed, cause = history.rows[run.last], history.rows[run.cause]
    if freed["context"] or cause["context"]:
        return bool(freed["context"] != cause["context"])
    if cause["action"] == Action.OOM:
        return False
    wanted = int(reserved[run.first]) + int(history.rows["size"][run.first]) + int(cause["size"])
    room = room_bytes(history, reserved)
    if room is not None:
        return wanted <= room
    return True if wanted <= reserved.max() else None


def _runs(actions: NDArray[np.uint8]) -> Iterator[_Run]:
    """Pending frees that complete may lie between a run and its cause."""
    frees = np.flatnonzero(actions == Action.SEGMENT_FREE)
    for run in np.split(frees, np.flatnonzero(np.diff(frees) > 1) + 1):
        if not len(run):
            continue
        after = int(run[-1]) + 1
        while after < len(actions) and actions[after] == Action.FREE_COMPLETED:
            after += 1
        causes = (Action.SEGMENT_ALLOC, Action.OOM, Action.SEGMENT_FREE)
        caused = after < len(actions) and actions[after] in causes
        yield _Run(int(run[0]), int(run[-1]), after if caused else None)
