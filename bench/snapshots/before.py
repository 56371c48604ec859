"""What an allocator held before the first event of its recorded history.

A history rarely begins with the process: recording was switched on late, or only the last events
were kept. A snapshot's segments are the state at its end; walked back from there through the
events, they are the state at the beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bench.snapshots.trace import (
    BLOCK,
    SEGMENT,
    Action,
    History,
    Names,
    Table,
    label_number,
    new_names,
    pool_id,
    read_rows,
)

PENDING = ("active_pending_free", "active_awaiting_free")


def read_history(snapshot: Mapping[str, Any] | list[Any], device_index: int = 0) -> History:
    """A device's part of what `torch.cuda.memory._snapshot()` returns, or of the list of segments
    that it once was. Raises KeyError, TypeError, ValueError, AttributeError or OverflowError for
    what is none."""
    names = new_names()
    traces = traces_of(snapshot)
    rows = read_rows(traces[device_index] if device_index < len(traces) else (), names)
    return history_before(rows, segments_of(snapshot, device_index), names)


def history_before(rows: Table, segments: Iterable[Mapping[str, Any]], names: Names) -> History:
    """The history whose rows end with a snapshot's segments, all of one device."""
    found = list(segments)
    at_end = np.array([_segment(each, names) for each in found], SEGMENT)
    blocks = np.array([block for each in found for block in _blocks(each, names)], BLOCK)
    return History(
        rows, _blocks_before(rows, blocks), _segments_before(rows, at_end), tuple(names.labels)
    )


def traces_of(snapshot: Mapping[str, Any] | list[Any]) -> list[Any]:
    """A history for each device; none in the oldest form."""
    return [] if isinstance(snapshot, list) else list(snapshot.get("device_traces") or [])


def segments_of(snapshot: Mapping[str, Any] | list[Any], device_index: int) -> list[Any]:
    """A device's segments."""
    found = snapshot if isinstance(snapshot, list) else snapshot["segments"]
    return [each for each in found if each.get("device", 0) == device_index]


def _segment(segment: Mapping[str, Any], names: Names) -> tuple[Any, ...]:
    pool = names.pools[pool_id(segment.get("segment_pool_id"))]
    expandable = bool(segment.get("is_expandable", False))
    return segment["address"], segment["total_size"], segment.get("stream", 0), pool, expandable


def _blocks(segment: Mapping[str, Any], names: Names) -> Iterator[tuple[Any, ...]]:
    """Those in use. In old snapshots blocks have no address: they lie one after the other."""
    pool = names.pools[pool_id(segment.get("segment_pool_id"))]
    end = segment["address"]
    for block in segment["blocks"]:
        address, size, state = block.get("address", end), block["size"], block["state"]
        end = address + size
        if state == "inactive":
            continue
        label = label_number(block, names)
        stream = segment.get("stream", 0)
        yield address, size, _requested(block), stream, pool, label, state in PENDING


def _requested(block: Mapping[str, Any]) -> int:
    history: list[Mapping[str, Any]] = block.get("history") or [{}]
    return int(block.get("requested_size") or history[0].get("real_size") or block["size"])


def _blocks_before(rows: Table, at_end: Table) -> Table:
    """From the blocks at the end, back through the history. What was freed in it is known by the
    bytes that were asked for alone."""
    live = {each[0]: each for each in at_end.tolist()}
    requests = bool((rows["action"] == Action.FREE_REQUESTED).any())
    for action, address, size, stream, pool, label, *_ in _backwards(rows):
        if action == Action.ALLOC:
            live.pop(address, None)
        elif action == Action.FREE_COMPLETED:
            rounded = -(-size // 512) * 512
            live[address] = address, rounded, size, stream, pool, label, requests
        elif action == Action.FREE_REQUESTED and address in live:
            live[address] = (*live[address][:-1], False)
    return np.array(sorted(live.values()), BLOCK)


def _segments_before(rows: Table, at_end: Table) -> Table:
    """A range may leave an expandable segment in other pieces than it came."""
    live = {each[0]: each for each in at_end.tolist()}
    for action, address, size, stream, pool, _, _, expandable in _backwards(rows):
        if action == Action.SEGMENT_FREE:
            live[address] = address, size, stream, pool, expandable
        elif action == Action.SEGMENT_ALLOC and live.get(address, (0, 0))[1] == size:
            del live[address]
        elif action == Action.SEGMENT_ALLOC:
            pieces = [p for each in live.values() for p in _without(each, address, address + size)]
            live = {piece[0]: piece for piece in pieces}
    return np.array(_joined(sorted(live.values())), SEGMENT)


def _joined(segments: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Parts of expandable segments that lie one after the other are one."""
    found: list[tuple[int, ...]] = []
    for each in segments:
        address, size, *kind = each
        before = found[-1] if found else (0, 0)
        if each[-1] and before[0] + before[1] == address and list(before[2:]) == kind:
            found[-1] = before[0], before[1] + size, *kind
        else:
            found.append(each)
    return found


def _without(segment: tuple[int, ...], start: int, end: int) -> Iterator[tuple[int, ...]]:
    """What of a segment lies outside [start, end)."""
    address, size, *rest = segment
    if address < start:
        yield address, min(size, start - address), *rest
    if address + size > end:
        first = max(address, end)
        yield first, address + size - first, *rest


def _backwards(rows: Table) -> Iterator[tuple[int, ...]]:
    found: list[tuple[int, ...]] = rows.tolist()
    return reversed(found)
