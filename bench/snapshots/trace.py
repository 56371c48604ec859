"""A caching allocator's history as tables: what it did, and what was there before.

PyTorch writes a snapshot as nested dicts, in forms that changed over its versions. They are read
once, here and in bench/snapshots/before.py; everything else works on these tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Action(IntEnum):
    """What the allocator did. Memory that is mapped into an expandable segment, or out of it, comes
    and goes as segments do."""

    ALLOC = 0
    FREE_REQUESTED = 1
    """The program gave it back; another stream may still use it."""
    FREE_COMPLETED = 2
    SEGMENT_ALLOC = 3
    SEGMENT_FREE = 4
    OOM = 5
    """An allocation was refused. Its address is how many bytes the driver had free."""


ACTIONS = {
    "alloc": Action.ALLOC,
    "free": Action.FREE_COMPLETED,
    "free_requested": Action.FREE_REQUESTED,
    "free_completed": Action.FREE_COMPLETED,
    "segment_alloc": Action.SEGMENT_ALLOC,
    "segment_map": Action.SEGMENT_ALLOC,
    "segment_free": Action.SEGMENT_FREE,
    "segment_unmap": Action.SEGMENT_FREE,
    "oom": Action.OOM,
}
"""By PyTorch's names. Others ("snapshot", "annotate") change nothing."""

MAPPED = ("segment_map", "segment_unmap")

DEFAULT_POOL = 0

MOST_CHARACTERS, MOST_LABELS = 40, 1000
"""Of a name, and of names, that a program gives to its memory: what is more is cut or left out."""

ROW = np.dtype(
    [
        ("action", "u1"),
        ("address", "u8"),
        ("size", "u8"),  # bytes; of blocks as they were asked for
        ("stream", "i8"),
        ("pool", "i4"),  # DEFAULT_POOL, or a private pool's number
        ("label", "i4"),  # of blocks, a place in History.labels
        ("context", "i8"),  # of segments and OOM: equal where the call stacks are; 0: unknown
        ("expandable", "?"),  # of segments
    ]
)
BLOCK = np.dtype(
    [
        ("address", "u8"),
        ("size", "u8"),  # what it takes
        ("requested", "u8"),
        ("stream", "i8"),
        ("pool", "i4"),
        ("label", "i4"),
        ("pending", "?"),  # given back, and still in use by another stream
    ]
)
SEGMENT = np.dtype(
    [("address", "u8"), ("size", "u8"), ("stream", "i8"), ("pool", "i4"), ("expandable", "?")]
)

Table = NDArray[np.void]


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """`rows` (of dtype ROW) in order of time; `blocks` (BLOCK) and `segments` (SEGMENT) were there
    before the first, in order of address. `labels` are the names that the program gave to its
    memory; the first is "", for none."""

    rows: Table
    blocks: Table
    segments: Table
    labels: tuple[str, ...] = ("",)


class Numbers(dict[Any, int]):
    """Numbers for things in the order in which they come, from 0 on."""

    def __missing__(self, key: Any) -> int:
        self[key] = number = len(self)
        return number


@dataclass(frozen=True, slots=True)
class Names:
    """How pools, labels and call stacks are numbered in one history."""

    pools: Numbers
    labels: Numbers
    contexts: Numbers


def new_names() -> Names:
    """The default pool, no label and no call stack are 0."""
    return Names(Numbers({(0, 0): 0}), Numbers({"": 0}), Numbers({(): 0}))


def read_rows(entries: Iterable[Mapping[str, Any]], names: Names) -> Table:
    """One device's trace of a snapshot. Raises KeyError, TypeError, ValueError or OverflowError
    for what is none."""
    rows = [_row(entry, names) for entry in entries if entry["action"] in ACTIONS]
    return np.array(rows, ROW)


def _row(entry: Mapping[str, Any], names: Names) -> tuple[int, ...]:
    action = ACTIONS[entry["action"]]
    stream = entry.get("stream", 0)
    pool = names.pools[pool_id(entry.get("pool_id"))]
    if action <= Action.FREE_COMPLETED:
        label = label_number(entry, names)
        return action, entry["addr"], entry["size"], stream, pool, label, 0, False
    context = names.contexts[_stack(entry.get("frames") or ())]
    expandable = entry["action"] in MAPPED
    address = entry.get("device_free", 0) if action == Action.OOM else entry["addr"]
    return action, address, entry["size"], stream, pool, 0, context, expandable


def label_number(entry: Mapping[str, Any], names: Names) -> int:
    """Of the name that a program gave to a block, as far as a picture has room for it."""
    name = str(entry.get("user_metadata") or "")[:MOST_CHARACTERS]
    shown = "".join(letter if letter.isprintable() else "?" for letter in name)
    if shown not in names.labels and len(names.labels) == MOST_LABELS:
        return 0
    return names.labels[shown]


def pool_id(value: Any) -> tuple[int, int]:
    """A pool's two numbers; the default's where a snapshot does not say."""
    if value is None:
        return 0, 0
    first, second = value
    return int(first), int(second)


def _stack(frames: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, int, str], ...]:
    return tuple((frame["filename"], frame["line"], frame["name"]) for frame in frames)
