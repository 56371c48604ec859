"""Puts in place what was there before a history begins.

Each segment is taken whole and given back to the cache; its blocks are then taken out of it in
order, with what was free between them as blocks too, which are freed at the end. So a replay begins
with the recorded gaps, where its settings allow them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, pairwise
from typing import NamedTuple

from bench.snapshots.replayer import Replayer
from bench.snapshots.trace import History

SMALL_BYTES = 1 << 20
"""PyTorch's allocator serves requests up to this from segments of their own kind, and splits off no
less from the others."""
LEAST_LARGE_BYTES = 10 << 20
"""The smallest segment that is not for small requests."""
FIRST_FILLER = 1 << 60
"""Where the numbers of what is only there for a while begin."""


HOLE = -1


class _Piece(NamedTuple):
    """A block, by its place in History.blocks; what is free (None); or a HOLE, which is not mapped,
    between parts of an expandable segment."""

    number: int | None
    size: int


class _Segment(NamedTuple):
    address: int
    size: int
    stream: int
    pool: int
    expandable: bool
    small: bool
    pieces: list[_Piece]

    @property
    def kind(self) -> tuple[int, int, bool]:
        """Of expandable segments of one kind there is one, in parts."""
        return self.stream, self.pool, self.small


def place_start(history: History, replayer: Replayer, *, exactly: bool) -> None:
    """Blocks take the bytes that they had (`exactly`), or those that were asked for: other settings
    may round them in another way."""
    placing = _Placing(history, replayer, exactly)
    for parts in _in_parts(list(_segments(history))):
        whole = _with_holes(parts)
        if len(parts) == 1 or not placing.place(whole):
            for part in parts:
                placing.place(part, even_if_refused=True)
    placing.finish()


class _Placing:
    def __init__(self, history: History, replayer: Replayer, exactly: bool) -> None:
        self._blocks = history.blocks
        self._replayer = replayer
        self._exactly = exactly
        self._placed: set[int] = set()
        self._fillers: list[int] = []
        self._numbers = count(FIRST_FILLER)

    def place(self, segment: _Segment, *, even_if_refused: bool = False) -> bool:
        """Whether the segment was granted; if not, its blocks are placed nowhere, or where there is
        room."""
        replayer, kind = self._replayer, (segment.stream, segment.pool)
        if not segment.small:
            whole = next(self._numbers)
            granted = replayer.alloc(whole, segment.size, *kind)
            replayer.free(whole)
            if not granted and not even_if_refused:
                return False
        holes: list[int] = []
        for number, size in _fitted(segment.pieces, segment.small):
            if number is None or number == HOLE:
                filler = next(self._numbers)
                (holes if number == HOLE else self._fillers).append(filler)
                replayer.alloc(filler, size, *kind)
            else:
                self._placed.add(number)
                asked = int(self._blocks["requested"][number])
                replayer.alloc(number, size if self._exactly else asked, *kind)
        self._free(holes)
        if holes:
            replayer.empty_cache()
        return True

    def finish(self) -> None:
        """Places blocks that are in no segment that is known, and frees what fills gaps."""
        for number, (_, _, requested, stream, pool, _, _) in enumerate(self._blocks.tolist()):
            if number not in self._placed:
                self._replayer.alloc(number, requested, stream, pool)
        self._free(self._fillers)
        for number in self._blocks["pending"].nonzero()[0].tolist():
            self._replayer.request_free(number)

    def _free(self, numbers: list[int]) -> None:
        for number in numbers:
            self._replayer.free(number)


def _in_parts(segments: list[_Segment]) -> Iterator[list[_Segment]]:
    """Segments, those together that are parts of one expandable segment."""
    parts: list[_Segment] = []
    for each in segments:
        if parts and each.expandable and parts[-1].expandable and each.kind == parts[-1].kind:
            parts.append(each)
            continue
        if parts:
            yield parts
        parts = [each]
    if parts:
        yield parts


def _with_holes(parts: list[_Segment]) -> _Segment:
    pieces = list(parts[0].pieces)
    for before, after in pairwise(parts):
        pieces.append(_Piece(HOLE, after.address - before.address - before.size))
        pieces += after.pieces
    size = parts[-1].address + parts[-1].size - parts[0].address
    return parts[0]._replace(size=size, pieces=pieces)


def _segments(history: History) -> Iterator[_Segment]:
    blocks = history.blocks[["address", "size"]].tolist()
    first = 0
    for address, size, stream, pool, expandable in history.segments.tolist():
        while first < len(blocks) and blocks[first][0] < address:
            first += 1
        last = first
        while last < len(blocks) and blocks[last][0] < address + size:
            last += 1
        inside = [(number, *blocks[number]) for number in range(first, last)]
        small = _is_small(size, [held for _, _, held in inside])
        pieces = list(_pieces(address, address + size, inside))
        yield _Segment(address, size, stream, pool, expandable, small, pieces)
        first = last


def _is_small(size: int, held: list[int]) -> bool:
    """Whether a segment serves small requests; of one with no blocks its size says."""
    if held:
        return max(held) <= SMALL_BYTES
    return size < LEAST_LARGE_BYTES


def _pieces(start: int, end: int, blocks: list[tuple[int, int, int]]) -> Iterator[_Piece]:
    """Blocks (number, address, size) and what is free between them."""
    for number, address, size in blocks:
        if address > start:
            yield _Piece(None, address - start)
        yield _Piece(number, size)
        start = address + size
    if start < end:
        yield _Piece(None, end - start)


def _fitted(pieces: list[_Piece], small: bool) -> Iterator[_Piece]:
    """Pieces as they can be asked for: in segments for small requests, of SMALL_BYTES at most."""
    if not small:
        yield from _joined(pieces)
        return
    for number, size in pieces:
        step = SMALL_BYTES if number is None or number == HOLE else size
        for start in range(0, size, step):
            yield _Piece(number, min(step, size - start))


def _joined(pieces: list[_Piece]) -> list[_Piece]:
    """In other segments, less than SMALL_BYTES is no piece. Beside a hole it is what was left when
    whole pages were unmapped; else it belongs to the block before it, which was not split."""
    found: list[_Piece] = []
    for number, size in pieces:
        before = found[-1] if found else _Piece(None, SMALL_BYTES + 1)
        slight = before.number is None and before.size <= SMALL_BYTES
        beside = before.number == HOLE and number is None and size <= SMALL_BYTES
        if (number == HOLE and slight) or beside:
            found[-1] = _Piece(HOLE, before.size + size)
        else:
            found.append(_Piece(number, size))
    return [
        _Piece(number, size + (gap if following is None and gap <= SMALL_BYTES else 0))
        for (number, size), (following, gap) in zip(found, [*found[1:], _Piece(0, 0)], strict=True)
        if number is not None or size > SMALL_BYTES
    ]
