"""What segments of the caching allocator are made of, and what of it could go back to the driver.

A segment from cudaMalloc goes back as a whole, so that one tensor in it keeps all of it. An
expandable segment is mapped from pages, and a page goes back when nothing in it is in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

ALLOCATED, RELEASABLE, STUCK = "allocated", "releasable", "stuck"
KINDS = (ALLOCATED, RELEASABLE, STUCK)
PAGE_BYTES = {"large": 20 << 20, "small": 2 << 20}
"""Of an expandable segment, by its pool (kLargeBuffer and kSmallBuffer)."""


class Piece(NamedTuple):
    """So many bytes in a row: allocated, free and releasable, or free and stuck."""

    nbytes: int
    kind: str


def pieces_of(segment: Mapping[str, Any]) -> list[Piece]:
    """A segment of `torch.cuda.memory_snapshot()`, from its first byte to its last."""
    blocks = [(block["size"], block["state"] == "inactive") for block in segment["blocks"]]
    if segment["is_expandable"]:
        return _of_pages(blocks, PAGE_BYTES[segment["segment_type"]])
    if all(free for _, free in blocks):
        return [Piece(segment["total_size"], RELEASABLE)]
    return [Piece(size, STUCK if free else ALLOCATED) for size, free in blocks]


def _of_pages(blocks: Iterable[tuple[int, bool]], page: int) -> list[Piece]:
    pieces, start = [], 0
    for size, free in blocks:
        end = start + size
        first, last = -(-start // page) * page, end // page * page  # the whole pages within
        if not free:
            pieces.append(Piece(size, ALLOCATED))
        elif first >= last:
            pieces.append(Piece(size, STUCK))
        else:
            pieces += [
                Piece(first - start, STUCK), Piece(last - first, RELEASABLE),
                Piece(end - last, STUCK),
            ]  # fmt: skip
        start = end
    return [piece for piece in pieces if piece.nbytes]


def total(pieces: Iterable[Piece], kind: str) -> int:
    """Bytes of one kind."""
    return sum(piece.nbytes for piece in pieces if piece.kind == kind)
