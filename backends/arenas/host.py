"""Host memory as an arena, for machines with no GPU and no virtual one.

The host allocator has no statistics to read: buffers are counted in pages, which is how the
operating system hands them out.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence

import torch

from backends.arenas.base import ArenaUsage
from backends.base import KvLayout


class HostArena:
    """CPU tensors, at most a budget's worth, each rounded up to whole pages."""

    error: str | None = None

    def __init__(self, layout: KvLayout) -> None:
        self._budget_bytes = layout.budget_bytes
        self._free_bytes = layout.budget_bytes
        self._live: dict[int, list[torch.Tensor]] = {}

    def can_ever_allocate(self, sizes: Sequence[int], groups: int = 1) -> bool:
        return groups * sum(map(_whole_pages, sizes)) <= self._budget_bytes

    def allocate(self, sizes: Sequence[int]) -> list[torch.Tensor] | None:
        allocated = sum(map(_whole_pages, sizes))
        if allocated > self._free_bytes:
            return None
        self._free_bytes -= allocated
        buffers = [torch.empty(size, dtype=torch.uint8) for size in sizes]
        self._live[id(buffers)] = buffers
        return buffers

    def release(self, buffers: list[torch.Tensor]) -> None:
        del self._live[id(buffers)]
        self._free_bytes += sum(_whole_pages(buffer.numel()) for buffer in buffers)

    def tensors(self, buffers: list[torch.Tensor]) -> list[torch.Tensor]:
        return buffers

    def usage(self) -> ArenaUsage:
        sizes = [buffer.numel() for buffers in self._live.values() for buffer in buffers]
        return ArenaUsage(sum(sizes), sum(map(_whole_pages, sizes)), self._free_bytes)

    def check_integrity(self) -> None:
        usage = self.usage()
        assert usage.allocated + usage.free == self._budget_bytes, usage


def _whole_pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
