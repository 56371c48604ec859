"""Physical pages on a GPU, mapped by the driver's virtual-memory calls.

All pages are created at the start, so that what is left for PyTorch's caching allocator never
changes, and growing costs a mapping and no allocation (vAttention, Prabhu et al., ASPLOS 2025,
section 6). As PyTorch's expandable segments do, pages are mapped and unmapped one by one
(cuMemUnmap takes a whole mapping), and access is granted to a row of new pages at once.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from cuda.bindings import driver

from backends.arenas.ranges import PAGE_BYTES
from backends.base import BackendError

_SUCCESS = driver.CUresult.CUDA_SUCCESS
_OUT_OF_MEMORY = driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY


@dataclass(slots=True)
class _Given:
    """What the driver gave: pages by where they are mapped, the others, and addresses."""

    unmapped: list[Any] = field(default_factory=list)
    mapped: dict[int, Any] = field(default_factory=dict)
    reserved: dict[int, int] = field(default_factory=dict)

    def give_back(self) -> None:
        torch.cuda.synchronize()
        for address in self.mapped:
            _done(driver.cuMemUnmap(address, PAGE_BYTES))
        for page in (*self.unmapped, *self.mapped.values()):
            _done(driver.cuMemRelease(page))
        for base, nbytes in self.reserved.items():
            _done(driver.cuMemAddressFree(base, nbytes))


class DevicePages:
    """`count` pages on the current device, given back when the object dies.

    Raises BackendError where the device's pages have another size or it has not that many.
    """

    def __init__(self, count: int) -> None:
        torch.cuda.synchronize()  # makes PyTorch's context the one that the driver's calls use
        kind = _kind_of_page(torch.cuda.current_device())
        _check_granularity(kind)
        self._access = _read_and_write(kind)
        self._given = _Given()
        # A process that ends gives everything back anyway.
        weakref.finalize(self, self._given.give_back).atexit = False
        for number in range(count):
            error, page = driver.cuMemCreate(PAGE_BYTES, kind, 0)
            if error == _OUT_OF_MEMORY:
                raise _too_many(count, number)
            self._given.unmapped.append(_done((error, page)))

    @property
    def num_unmapped(self) -> int:
        return len(self._given.unmapped)

    def reserve(self, nbytes: int) -> int | None:
        error, base = driver.cuMemAddressReserve(nbytes, 0, 0, 0)
        if error == _OUT_OF_MEMORY:
            return None
        address = int(_done((error, base)))
        self._given.reserved[address] = nbytes
        return address

    def map(self, base: int, offsets: Sequence[int], count: int) -> None:
        given, nbytes = self._given, count * PAGE_BYTES
        for start in (base + offset for offset in offsets):
            for address in range(start, start + nbytes, PAGE_BYTES):
                page = given.unmapped.pop()
                _done(driver.cuMemMap(address, PAGE_BYTES, 0, page, 0))
                given.mapped[address] = page
            _done(driver.cuMemSetAccess(start, nbytes, [self._access], 1))

    def unmap(self, base: int, offsets: Sequence[int], count: int) -> None:
        torch.cuda.current_stream().synchronize()  # kernels may be at work; cuMemUnmap won't wait
        given = self._given
        for start in (base + offset for offset in offsets):
            for address in range(start, start + count * PAGE_BYTES, PAGE_BYTES):
                _done(driver.cuMemUnmap(address, PAGE_BYTES))
                given.unmapped.append(given.mapped.pop(address))

    def view(self, base: int, nbytes: int) -> torch.Tensor:
        return torch.as_tensor(_Bytes(self, base, nbytes), device="cuda")

    def mapped_addresses(self) -> set[int]:
        return set(self._given.mapped)


class _Bytes:
    """Device memory as PyTorch takes it from others; keeps the pages alive."""

    def __init__(self, pages: DevicePages, address: int, nbytes: int) -> None:
        self.pages = pages
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def _kind_of_page(device: int) -> Any:
    kind = driver.CUmemAllocationProp()
    kind.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    kind.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    kind.location.id = device
    return kind


def _read_and_write(kind: Any) -> Any:
    access = driver.CUmemAccessDesc()
    access.location = kind.location
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    return access


def _check_granularity(kind: Any) -> None:
    least = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    granularity = _done(driver.cuMemGetAllocationGranularity(kind, least))
    if granularity != PAGE_BYTES:
        raise BackendError(
            f"this GPU's driver maps pages of {granularity} bytes and backend vmm is made for "
            f"{PAGE_BYTES}: choose another backend"
        )


def _too_many(count: int, made: int) -> BackendError:
    return BackendError(
        f"the KV budget is {count} pages of 2 MiB and the GPU has room for {made}: lower kv_budget "
        "or utilization"
    )


def _done(result: tuple[Any, ...]) -> Any:
    """A driver call's value. Raises RuntimeError where it failed."""
    error, *values = result
    if error != _SUCCESS:
        raise RuntimeError(f"the CUDA driver refused to manage KV pages: {error.name}")
    return values[0] if values else None
