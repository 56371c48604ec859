"""The largest block that PyTorch's allocator could hand out, from a snapshot of its segments.

Expandable segments are stretches of mapped addresses with unmapped holes between them. The
allocator serves a request that no block fits by mapping pages into a hole, together with the free
blocks around it; of the holes with room for the request it takes the first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

# How much PyTorch maps at once into an expandable segment for requests above 1 MiB.
EXPANDABLE_STEP_BYTES = 20 << 20

_ENDLESS_BYTES = 1 << 62

FindReservation = Callable[[int], tuple[int, int] | None]


class _Piece(NamedTuple):
    n_bytes: int
    mapped: bool


_Row = list[_Piece]


def largest_free_block(
    segments: Iterable[Mapping[str, Any]],
    driver_free_bytes: int,
    find_reservation: FindReservation = lambda address: None,
) -> int:
    """The largest request, in bytes, that could be served without giving anything back.

    `segments` are those of `torch.cuda.memory_snapshot()`. That is the largest inactive block or
    all of the driver's free memory as a new segment; or, with expandable segments, what mapping
    the driver's free pages beside inactive blocks can make. `find_reservation` says which range of
    addresses, [start, end), a segment may grow in; where it is not known (None), that is taken to
    begin with the segment and to have no end.
    """
    segments = list(segments)
    largest = max(
        (b["size"] for s in segments for b in s["blocks"] if b["state"] == "inactive"), default=0
    )
    if not any(segment["is_expandable"] for segment in segments):
        return max(largest, driver_free_bytes)
    pages = driver_free_bytes // EXPANDABLE_STEP_BYTES * EXPANDABLE_STEP_BYTES
    pools: dict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for segment in sorted(segments, key=lambda segment: segment["address"]):
        if segment["segment_type"] == "large":
            pools[segment["stream"], segment["segment_pool_id"]].append(segment)
    grown = (_largest_grown(_rows(pool, find_reservation), pages) for pool in pools.values())
    return max(largest, max(grown, default=pages))


def _largest_grown(rows: Iterable[_Row], pages_bytes: int) -> int:
    best = widest_before = 0
    for row in rows:
        for place, piece in enumerate(row):
            if piece.mapped:
                continue
            start = place - 1 if place and row[place - 1].mapped else place
            made = _fill(row[start:], pages_bytes)
            # A request that an earlier hole has room for goes there, and fails if pages are short.
            if made > widest_before:
                best = max(best, made)
            widest_before = max(widest_before, sum(piece.n_bytes for piece in row[start:]))
    # If no hole has room, a new range of addresses is reserved.
    return max(best, pages_bytes) if pages_bytes > widest_before else best


def _rows(pool: Sequence[Mapping[str, Any]], find_reservation: FindReservation) -> Iterator[_Row]:
    """The free pieces, inactive blocks and holes, that lie in a row, in order of address."""
    row: _Row = []
    position = end = 0
    for segment in pool:
        if segment["address"] >= end:  # the next range of addresses
            yield [*row, _Piece(end - position, mapped=False)] if end else row
            row = []
            position, end = find_reservation(segment["address"]) or (
                segment["address"],
                _ENDLESS_BYTES,
            )
        row.append(_Piece(segment["address"] - position, mapped=False))
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                row.append(_Piece(block["size"], mapped=True))
            else:
                yield row
                row = []
        position = segment["address"] + segment["total_size"]
    yield [*row, _Piece(end - position, mapped=False)]


def _fill(row: _Row, pages_bytes: int) -> int:
    """How far a row reaches when its holes are filled, in order, while pages last."""
    reached = 0
    for piece in row:
        taken = piece.n_bytes if piece.mapped else min(piece.n_bytes, pages_bytes)
        reached += taken
        if taken < piece.n_bytes:
            break
        pages_bytes -= 0 if piece.mapped else taken
    return reached
