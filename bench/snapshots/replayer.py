"""Does to this process's caching allocator what a recorded program did to its own.

It runs on device 0 of a process of its own: on the virtual GPU, or on a real one.
"""

from __future__ import annotations

from typing import Any

import torch

from bench.snapshots.trace import DEFAULT_POOL

# Which of PyTorch's functions have annotations varies from version to version.
_bindings: Any = torch._C
_cuda: Any = torch.cuda


class Replayer:
    """Allocations go by number. One that was refused is none: what is done to it later is left out.

    A free that waits for another stream holds its memory until it completes. Where an allocation
    would be refused, the allocator waits for such frees first, and so do they complete here.
    """

    def __init__(self) -> None:
        """Starts CUDA, if that has not been done."""
        _cuda.init()
        self._take = _bindings._cuda_cudaCachingAllocator_raw_alloc
        self._give = _bindings._cuda_cudaCachingAllocator_raw_delete
        self._addresses: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._pending: dict[int, None] = {}
        self._pools: dict[int, Any] = {}
        self._waited = 0
        self.allocated_bytes = self.reserved_bytes = 0
        self.refused = 0
        self.ends = 0
        """Events that end something in the allocator's history: what it gave, took and refused."""

    def alloc(self, number: int, size: int, stream: int = 0, pool: int = DEFAULT_POOL) -> int:
        """Its address, or 0 where it is refused."""
        before = self._read()
        address = self._try(size, stream, pool)
        if not address and self._pending:
            self._waited += 1
            for each in list(self._pending):
                self.complete_free(each)
            _cuda.empty_cache()
            before = self._read()
            address = self._try(size, stream, pool)
        after = self._read()
        if address:
            self._addresses[number], self._sizes[number] = address, after - before
            self.allocated_bytes += after - before
        else:
            self.refused += 1
        return address

    def free(self, number: int) -> int:
        """At once. The address that it had, or 0 if it was refused."""
        address = self._addresses.get(number, 0)
        self.request_free(number)
        self.complete_free(number)
        return address

    def request_free(self, number: int) -> None:
        """Of memory that another stream still uses."""
        if number in self._addresses:
            self._pending[number] = None
            self.allocated_bytes -= self._sizes.pop(number)

    def complete_free(self, number: int) -> None:
        """Of memory that is no longer used by any."""
        if number in self._pending:
            del self._pending[number]
            self._give(self._addresses.pop(number))
            self.ends += 1

    def attempt(self, size: int, stream: int, pool: int) -> bool:
        """An allocation that was refused where it was recorded. Whether it is granted here; it is
        freed at once, as its program went on without it."""
        granted = bool(self.alloc(-1, size, stream, pool))
        if granted:
            self.free(-1)
        return granted

    def empty_cache(self) -> None:
        _cuda.empty_cache()
        self._read()

    def drop_pool(self, pool: int) -> None:
        """What is no longer used of a private pool goes back to the driver."""
        if self._pools.pop(pool, None) is None:
            _cuda.empty_cache()
        self._read()

    def numbers(self) -> dict[int, int]:
        """Of the allocations that are there, by address."""
        return {address: number for number, address in self._addresses.items()}

    def counts(self) -> dict[str, int]:
        """Retries and refusals, as a program would have seen them, since this process began."""
        stats = _bindings._cuda_memoryStats(0)
        return {
            "num_alloc_retries": stats["num_alloc_retries"] - self._waited,
            "num_ooms": stats["num_ooms"] - self._waited,
        }

    def _try(self, size: int, stream: int, pool: int) -> int:
        self.ends += 1
        try:
            if pool == DEFAULT_POOL:
                return int(self._take(size, stream))
            with _cuda.use_mem_pool(self._pool(pool)):
                return int(self._take(size, stream))
        except torch.OutOfMemoryError:
            return 0

    def _pool(self, pool: int) -> Any:
        if pool not in self._pools:
            self._pools[pool] = _cuda.MemPool()
        return self._pools[pool]

    def _read(self) -> int:
        """Bytes that the allocator has given out, frees that wait included."""
        stats = _bindings._cuda_memoryStats(0)
        self.reserved_bytes = stats["reserved_bytes"]["all"]["current"]
        return int(stats["allocated_bytes"]["all"]["current"])
