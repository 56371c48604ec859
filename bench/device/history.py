"""The caching allocator's own history: which blocks it gave, in which order, and took back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Event = tuple[int, int]
"""(i, bytes): the i-th allocation; (~i, bytes): it is freed. Bytes as they were asked for."""


class History(NamedTuple):
    """`live` allocations were not freed; `unknown` frees are of what was there before."""

    events: list[Event]
    live: int
    unknown: int


def read_history(entries: Iterable[Mapping[str, Any]]) -> History:
    """Of one device's trace in a snapshot of torch.cuda.memory. What did not fit is in none."""
    events: list[Event] = []
    live: dict[int, Event] = {}
    count = unknown = 0
    for entry in entries:
        if entry["action"] == "alloc":
            live[entry["addr"]] = count, entry["size"]
            events.append((count, entry["size"]))
            count += 1
        elif entry["action"] == "free_completed":
            if entry["addr"] not in live:
                unknown += 1
                continue
            index, size = live.pop(entry["addr"])
            events.append((~index, size))
    return History(events, len(live), unknown)
