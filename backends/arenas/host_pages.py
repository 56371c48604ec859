"""Host memory in the place of a GPU's pages: the operating system maps them on demand itself."""

from __future__ import annotations

import mmap
from collections.abc import Sequence

import torch

from backends.arenas.ranges import PAGE_BYTES


class HostPages:
    """Anonymous mappings as address ranges, and a count of `count` pages among them. A page that
    is unmapped goes back to the operating system."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._mapped: set[int] = set()
        self._ranges: dict[int, tuple[mmap.mmap, torch.Tensor]] = {}

    @property
    def num_unmapped(self) -> int:
        return self._count - len(self._mapped)

    def reserve(self, nbytes: int) -> int | None:
        try:
            memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError:
            return None
        everything = torch.frombuffer(memory, dtype=torch.uint8)
        self._ranges[everything.data_ptr()] = memory, everything
        return everything.data_ptr()

    def map(self, base: int, offsets: Sequence[int], count: int) -> None:
        addresses = _addresses(base, offsets, count)
        assert len(addresses) <= self.num_unmapped, "more pages than there are"
        assert self._mapped.isdisjoint(addresses), "a page where one is"
        self._mapped |= addresses

    def unmap(self, base: int, offsets: Sequence[int], count: int) -> None:
        addresses = _addresses(base, offsets, count)
        assert addresses <= self._mapped, "no page is there"
        self._mapped -= addresses
        memory, _ = self._ranges[base]
        for offset in offsets:
            memory.madvise(mmap.MADV_DONTNEED, offset, count * PAGE_BYTES)

    def view(self, base: int, nbytes: int) -> torch.Tensor:
        _, everything = self._ranges[base]
        return everything[:nbytes]

    def mapped_addresses(self) -> set[int]:
        return set(self._mapped)


def _addresses(base: int, offsets: Sequence[int], count: int) -> set[int]:
    return {base + offset + page * PAGE_BYTES for offset in offsets for page in range(count)}
