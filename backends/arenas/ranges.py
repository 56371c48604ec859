"""Ranges of virtual addresses that grow in place, over one pool of physical pages.

A range has planes of equal length (a K and a V plane a layer, or one for all) and grows by rows:
a row is one page in every plane. Rows that are mapped beyond what a range's holder needs are
spare: they serve that range as it grows, or are unmapped for another one when the pool is empty,
those of idle ranges first, longest idle before others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

PAGE_BYTES = 2 << 20
"""A physical page: the least that CUDA's driver maps."""


class Pages(Protocol):
    """Physical pages and the addresses they are mapped at. `base` is where a reservation of
    addresses starts; `offsets` count from there, in bytes."""

    @property
    def num_unmapped(self) -> int:
        """Pages that are mapped nowhere."""
        ...

    def reserve(self, nbytes: int) -> int | None:
        """The base of so many bytes of addresses, or None if there are none left."""
        ...

    def map(self, base: int, offsets: Sequence[int], count: int) -> None:
        """Maps `count` pages in a row from each offset on; they must be there."""
        ...

    def unmap(self, base: int, offsets: Sequence[int], count: int) -> None:
        """Takes back `count` pages in a row from each offset on, and what they hold is lost."""
        ...

    def view(self, base: int, nbytes: int) -> torch.Tensor:
        """A reservation's bytes, a page of which is mapped, as a uint8 tensor: only what is mapped
        may be read or written."""
        ...

    def mapped_addresses(self) -> set[int]:
        """Where pages are mapped."""
        ...


@dataclass(slots=True, eq=False)
class Range:
    """Addresses from `base` on with `mapped` rows of pages: a holder needs the first `held`."""

    base: int
    mapped: int = 0
    held: int = 0
    memory: torch.Tensor | None = None

    @property
    def spare(self) -> int:
        return self.mapped - self.held


class Ranges:
    """`num_rows` rows of `planes` pages, for ranges of at most `most_rows`. With `keeps_mapped` a
    range that is given back keeps its pages until another one needs them."""

    def __init__(
        self, pages: Pages, *, planes: int, num_rows: int, most_rows: int, keeps_mapped: bool
    ) -> None:
        self.num_rows = num_rows
        self.held_rows = 0
        self._pages = pages
        self._planes = planes
        self._plane_stride_bytes = most_rows * PAGE_BYTES
        self._keeps_mapped = keeps_mapped
        self._spare_rows = 0
        self._num_ranges = 0
        self._idle: dict[Range, None] = {}  # nobody's, with rows mapped, longest idle first
        self._ahead: dict[Range, None] = {}  # somebody's, with spare rows
        self._bare: list[Range] = []  # nobody's, with nothing mapped

    @property
    def free_rows(self) -> int:
        """Rows that can be held: unmapped or spare."""
        return self._unmapped_rows + self._spare_rows

    @property
    def _unmapped_rows(self) -> int:
        return self._pages.num_unmapped // self._planes

    def take(self, rows: int) -> Range | None:
        """A range that holds nothing yet, for somebody who will soon need `rows`: the shortest
        idle one that has them mapped, else the longest. None if there are no addresses left."""
        if self._idle:
            fitting = min(self._idle, key=lambda it: (it.mapped < rows, abs(it.mapped - rows)))
            del self._idle[fitting]
            self._ahead[fitting] = None
            return fitting
        if self._bare:
            return self._bare.pop()
        base = self._pages.reserve(self._planes * self._plane_stride_bytes)
        if base is None:
            return None
        self._num_ranges += 1
        return Range(base)

    def grow(self, grown: Range, rows: int) -> None:
        """Makes a range hold `rows`; those that it lacks must be free."""
        more, missing = rows - grown.held, max(0, rows - grown.mapped)
        grown.held = rows
        self.held_rows += more
        self._spare_rows -= more - missing
        if grown.spare <= 0:
            self._ahead.pop(grown, None)
        if missing:
            self._make_unmapped(missing)
            self._pages.map(grown.base, self._offsets(grown.mapped), missing)
            grown.mapped = rows

    def release(self, returned: Range) -> None:
        """Takes a range back from its holder; what it holds is lost."""
        self.held_rows -= returned.held
        self._spare_rows += returned.held
        returned.held = 0
        self._ahead.pop(returned, None)
        if returned.mapped and self._keeps_mapped:
            self._idle[returned] = None
        else:
            self._unmap(returned, returned.mapped)
            self._bare.append(returned)

    def _make_unmapped(self, rows: int) -> None:
        while (lacking := rows - self._unmapped_rows) > 0:
            victim = next(iter(self._idle or self._ahead))
            self._unmap(victim, min(lacking, victim.spare))
            if victim.spare:
                continue
            if victim in self._idle:
                self._bare.append(victim)
            self._idle.pop(victim, None)
            self._ahead.pop(victim, None)

    def _unmap(self, shrunk: Range, rows: int) -> None:
        if rows:
            shrunk.mapped -= rows
            self._spare_rows -= rows
            self._pages.unmap(shrunk.base, self._offsets(shrunk.mapped), rows)

    def copy(self, source: Range, target: Range, nbytes: int) -> None:
        """Copies the first `nbytes` of every plane, in one launch on a GPU."""
        word = torch.int64 if nbytes % 8 == 0 else torch.uint8  # a thread copies a word
        to, what = self._memory(target)[:, :nbytes], self._memory(source)[:, :nbytes]
        to.view(word).copy_(what.view(word))

    def planes(self, shown: Range, nbytes: int) -> list[torch.Tensor]:
        """The first `nbytes` of every plane, as uint8 tensors."""
        return list(self._memory(shown)[:, :nbytes])

    def _memory(self, shown: Range) -> torch.Tensor:
        """All addresses of a range that holds something, a plane a row."""
        if shown.memory is None:
            everything = self._pages.view(shown.base, self._planes * self._plane_stride_bytes)
            shown.memory = everything.view(self._planes, self._plane_stride_bytes)
        return shown.memory

    def _offsets(self, row: int) -> range:
        """Where a row's pages are, one a plane."""
        start, stride = row * PAGE_BYTES, self._plane_stride_bytes
        return range(start, start + self._planes * stride, stride)

    def check_integrity(self, held: Iterable[Range]) -> None:
        """Raises AssertionError unless every page is unmapped or where its range says, and every
        range is somebody's (`held`) or nobody's."""
        held, nobodys = list(held), [*self._idle, *self._bare]
        everyone = [*held, *nobodys]
        assert len(set(everyone)) == len(everyone) == self._num_ranges, "a range has two places"
        assert all(each.held == 0 for each in nobodys)
        assert {each for each in held if each.spare} == set(self._ahead)
        assert all(each.mapped for each in self._idle)
        assert not any(each.mapped for each in self._bare)
        assert min((each.spare for each in everyone), default=0) >= 0
        assert self.held_rows == sum(each.held for each in held)
        assert self._spare_rows == sum(each.spare for each in everyone)
        assert self._pages.num_unmapped % self._planes == 0
        assert self._unmapped_rows + sum(each.mapped for each in everyone) == self.num_rows
        assert self._pages.mapped_addresses() == {
            each.base + offset
            for each in everyone
            for row in range(each.mapped)
            for offset in self._offsets(row)
        }
