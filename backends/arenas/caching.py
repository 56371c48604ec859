"""PyTorch's CUDA caching allocator as an arena: real segments, splitting and rounding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from backends.arenas.base import ArenaUsage
from backends.base import KvLayout, Others

SMALL_BYTES = 1 << 20
SMALL_ROUNDING_BYTES = 512
LARGE_ROUNDING_BYTES = 20 << 20
"""No block is given with more to spare: small ones are always split, and large segments of less
than 10 MiB are 20 MiB long (kSmallSize, kMinBlockSize and kLargeBuffer in CUDACachingAllocator).
On top, roundup_power2_divisions:2 makes sizes up to half as large again."""


class CachingArena:
    """Tensors from the caching allocator, at most a budget's worth.

    Other tensors (weights, workspace) live in the same allocator: what it held when the arena was
    made is the baseline that the arena's own use is counted from. What others took since then and
    hold between steps the layout tells. Read it between steps, when no activation is alive.
    """

    error: str | None = None

    def __init__(self, layout: KvLayout) -> None:
        self._budget_bytes = layout.budget_bytes
        self._others = layout.others
        self._live = 0
        self._worst_case_bytes = 0
        torch.cuda.init()  # type: ignore[no-untyped-call]  # there are no statistics before
        self._baseline = _read(self._others())
        self._not_kv_bytes = self._baseline.free - layout.budget_bytes

    def can_ever_allocate(self, sizes: Sequence[int], groups: int = 1) -> bool:
        return groups * sum(sizes) <= self._budget_bytes

    def allocate(self, sizes: Sequence[int]) -> list[torch.Tensor] | None:
        self.error = None
        worst_case_bytes = sum(map(_worst_case, sizes))
        near = self._worst_case_bytes + worst_case_bytes > self._budget_bytes
        if near and sum(sizes) + self._allocated() > self._budget_bytes:
            return None
        buffers: list[torch.Tensor] = []
        try:
            for size in sizes:
                buffers.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError as error:
            self.error = str(error)
            return None  # what was taken so far goes back as `buffers` dies
        if near and self._allocated() > self._budget_bytes:  # blocks that were not split
            return None
        self._live += len(buffers)
        self._worst_case_bytes += worst_case_bytes
        return buffers

    def release(self, buffers: list[torch.Tensor]) -> None:
        self._live -= len(buffers)
        self._worst_case_bytes -= sum(_worst_case(buffer.numel()) for buffer in buffers)
        buffers.clear()

    def _allocated(self) -> int:
        return _read(self._others()).allocated - self._baseline.allocated

    def tensors(self, buffers: list[torch.Tensor]) -> list[torch.Tensor]:
        return buffers

    def usage(self) -> ArenaUsage:
        now = _read(self._others())
        return ArenaUsage(
            requested=now.requested - self._baseline.requested,
            allocated=now.allocated - self._baseline.allocated,
            free=now.free - self._not_kv_bytes,
        )

    def check_integrity(self) -> None:
        usage = self.usage()
        assert 0 <= usage.requested <= usage.allocated <= self._budget_bytes, usage
        assert (self._live == 0) == (usage.requested == 0), usage


def _worst_case(size: int) -> int:
    rounding = SMALL_ROUNDING_BYTES if size <= SMALL_BYTES else LARGE_ROUNDING_BYTES
    return size + size // 2 + rounding


def _read(others: Others) -> ArenaUsage:
    """The whole allocator without what `others` hold: `free` is what the driver has left plus what
    the allocator keeps, and would be if they held nothing."""
    stats: dict[str, Any] = torch.cuda.memory_stats_as_nested_dict()
    allocated = stats["allocated_bytes"]["all"]["current"]
    driver_free, _ = torch.cuda.mem_get_info()
    return ArenaUsage(
        requested=stats["requested_bytes"]["all"]["current"] - others.requested,
        allocated=allocated - others.allocated,
        free=driver_free + stats["reserved_bytes"]["all"]["current"] - allocated + others.allocated,
    )
