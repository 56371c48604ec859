"""What PyTorch's caching allocator holds and what it asks of the driver.

For use in the process that runs on the device: it imports PyTorch.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch

from bench.device.free_blocks import largest_free_block
from bench.device.occupancy import occupancy
from bench.errors import SettingError

# Which of PyTorch's functions have annotations varies from version to version.
_cuda: Any = torch.cuda
_bindings: Any = torch._C


_RESERVED_AND_ACTIVE = ("reserved_bytes", "active_bytes")


@dataclass(frozen=True, slots=True)
class AllocatorStats:
    """One reading of the allocator, in bytes and counts since the process began.

    Under expandable segments PyTorch leaves segments and inactive splits at 0: None here.
    """

    allocated_bytes: int
    requested_bytes: int
    reserved_bytes: int
    active_bytes: int
    inactive_split_bytes: int | None
    inactive_splits: int | None
    segments: int | None
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    num_alloc_retries: int
    num_ooms: int
    num_device_alloc: int
    num_device_free: int
    driver_free_bytes: int

    @property
    def total_free_bytes(self) -> int:
        """Memory that no tensor holds: the driver's and what the allocator caches."""
        return self.driver_free_bytes + self.reserved_bytes - self.allocated_bytes


def external_fragmentation(largest_free_bytes: int, total_free_bytes: int) -> float | None:
    """1 - largest free block / total free, from 0 (one block) to 1; None if nothing is free."""
    if total_free_bytes <= 0:
        return None
    return 1 - largest_free_bytes / total_free_bytes


class AllocatorReader:
    """Reads the caching allocator of this process's device 0, on the virtual GPU or a real one."""

    def __init__(self) -> None:
        """Initializes CUDA."""
        _cuda.init()
        self._stats: Callable[[int], dict[str, Any]] = _bindings._cuda_memoryStats
        self._snapshot: Callable[[object], dict[str, Any]] = _bindings._cuda_memorySnapshot
        self._free_and_total: Callable[[int], tuple[int, int]] = _cuda.cudart().cudaMemGetInfo
        settings = self._snapshot(None)["allocator_settings"]
        self.expandable_segments: bool = settings["expandable_segments"]

    def read(self) -> AllocatorStats:
        """The allocator's counters, in about 12 us (`torch.cuda.memory_stats` takes six times that,
        for flattening and sorting them)."""
        stats = self._stats(0)
        available = not self.expandable_segments
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        return AllocatorStats(
            allocated_bytes=allocated["current"],
            requested_bytes=stats["requested_bytes"]["all"]["current"],
            reserved_bytes=reserved["current"],
            active_bytes=stats["active_bytes"]["all"]["current"],
            inactive_split_bytes=(
                stats["inactive_split_bytes"]["all"]["current"] if available else None
            ),
            inactive_splits=stats["inactive_split"]["all"]["current"] if available else None,
            segments=stats["segment"]["all"]["current"] if available else None,
            peak_allocated_bytes=allocated["peak"],
            peak_reserved_bytes=reserved["peak"],
            num_alloc_retries=stats["num_alloc_retries"],
            num_ooms=stats["num_ooms"],
            num_device_alloc=stats["num_device_alloc"],
            num_device_free=stats["num_device_free"],
            driver_free_bytes=self._free_and_total(0)[0],
        )

    def largest_free_bytes(self) -> int:
        """The largest request, in bytes, that could be served without giving anything back.

        It walks every block, at about 1 us each: call it at samples, not at every step. It need
        not where the driver has more than all free blocks together: that is the largest then.
        """
        driver_free = self._free_and_total(0)[0]
        if not self.expandable_segments:
            stats = self._stats(0)
            reserved, active = (stats[name]["all"]["current"] for name in _RESERVED_AND_ACTIVE)
            if reserved - active <= driver_free:
                return driver_free
        with _uncollected():
            segments = self._snapshot(None)["segments"]
        return largest_free_block(segments, driver_free, _find_reservation)

    def memory_map(self, parts: int) -> list[int]:
        """How full each of `parts` equal parts of reserved memory is, in per cent. It walks every
        block, as `largest_free_bytes` does."""
        return occupancy(self._snapshot(None)["segments"], parts)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the garbage collector, which would look for cycles again and again while dicts are
    made, one a block: a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _find_reservation(address: int) -> tuple[int, int] | None:
    """The addresses reserved around one, [start, end); only the virtual GPU tells."""
    library = ctypes.CDLL(None)
    bounds = (ctypes.c_uint64 * 2)()
    if not hasattr(library, "fragbench_find_reservation"):
        return None
    library.fragbench_find_reservation.restype = ctypes.c_bool
    found = library.fragbench_find_reservation(ctypes.c_uint64(address), bounds)
    return (bounds[0], bounds[1]) if found else None


class DriverCalls:
    """Counts of driver calls since the process began, by kind.

    On the virtual GPU they are exact, from its library: cudaMalloc, cudaFree, cuMemCreate, cuMemMap
    and so on, synchronizations and failed allocations. On a real GPU there are two, cudaMalloc and
    cudaFree, from the allocator's own counts.
    """

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self._counters: ctypes.Array[ctypes.c_uint64] | None = None
        self._kinds: list[str] = []
        self._calls_before = b""
        self._calls: dict[str, int] = {}
        if hasattr(library, "fragbench_counters"):
            library.fragbench_call_name.restype = ctypes.c_char_p
            while name := library.fragbench_call_name(len(self._kinds)):
                self._kinds.append(name.decode())
            library.fragbench_counters.restype = ctypes.c_void_p
            # capacity, what is taken of it and peaks, then the calls
            size = _Counters.CALLS + len(self._kinds)
            address = library.fragbench_counters()
            self._counters = (ctypes.c_uint64 * size).from_address(address)
            calls_bytes = ctypes.c_char * (8 * len(self._kinds))
            self._calls_now = calls_bytes.from_address(address + 8 * _Counters.CALLS)

    def read(self) -> dict[str, int]:
        """Calls by kind; the same dict as before if none was made since. Costs 0.2 us then on the
        virtual GPU, else 2 us; 12 us on a real one."""
        if self._counters is None:
            stats = _bindings._cuda_memoryStats(0)
            return {"cudaMalloc": stats["num_device_alloc"], "cudaFree": stats["num_device_free"]}
        now = self._calls_now.raw
        if now != self._calls_before:
            self._calls_before = now
            self._calls = dict(zip(self._kinds, self._counters[_Counters.CALLS :], strict=True))
        return self._calls

    @property
    def peak_bytes(self) -> int | None:
        """The most device memory that was in use, without the context; None on a real GPU."""
        return None if self._counters is None else self._counters[_Counters.PEAK]


class _Counters:
    """Places in the library's `struct device_counters`, in 8-byte words."""

    PEAK = 6
    CALLS = 7


class HeldBack:
    """Device memory taken outside PyTorch's allocator, which so has less. A context manager."""

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes
        self._library = _cuda_runtime()
        self._pointer = ctypes.c_void_p()
        _cuda.init()
        error = self._library.cudaMalloc(ctypes.byref(self._pointer), ctypes.c_size_t(n_bytes))
        if error:
            self._library.cudaGetLastError()  # or PyTorch would report it as its own
            free, total = (size / 2**20 for size in torch.cuda.mem_get_info(0))
            raise SettingError(
                f"cannot hold back {n_bytes / 2**20:,.0f} MiB of device memory: {free:,.0f} MiB of "
                f"{total:,.0f} are free"
            )

    def release(self) -> None:
        """Gives the memory back to the driver; a second call does nothing."""
        if self._pointer:
            self._library.cudaFree(self._pointer)
            self._pointer = ctypes.c_void_p()

    def __enter__(self) -> HeldBack:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def hold_back(n_bytes: int) -> HeldBack:
    """Takes device memory from the driver, so that PyTorch finds that much less.

    Raises SettingError if the driver has not that much.
    """
    return HeldBack(n_bytes)


def _cuda_runtime() -> ctypes.CDLL:
    """The CUDA runtime that this process uses: the preloaded one comes first in the search."""
    everything = ctypes.CDLL(None)
    if hasattr(everything, "cudaMalloc"):
        return everything
    assert torch.version.cuda is not None
    return ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
