"""Pages mapped by the driver: jobs for the virtual GPU.

The layout is Llama-3-8B's: a page of 2 MiB holds 1,024 tokens of one layer's K, or 16 of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from backends.arenas import pages
from backends.base import BackendError, Demand, KvLayout
from backends.vmm import Vmm
from bench.device.stats import DriverCalls

GIB = 1 << 30


def started(budget_bytes: int, **settings: Any) -> Vmm:
    backend = Vmm(**settings)
    backend.start(KvLayout(32, 131_072, 8192, budget_bytes, "cuda"))
    return backend


def driver_free_bytes() -> int:
    torch.cuda.init()  # type: ignore[no-untyped-call]
    return torch.cuda.mem_get_info()[0]


class Counter:
    """Driver calls of one kind after another, by what was done."""

    def __init__(self) -> None:
        self._driver = DriverCalls()
        self.found: dict[str, dict[str, int]] = {}

    @contextmanager
    def count(self, name: str) -> Iterator[None]:
        before = self._driver.read()
        yield
        after = self._driver.read()
        self.found[name] = {kind: after[kind] - n for kind, n in before.items() if after[kind] > n}


def two_lives(payload: dict[str, Any]) -> dict[str, Any]:
    """A sequence grows, forks and ends; another as long follows."""
    backend, counter = started(2 * GIB, **payload["settings"]), Counter()
    page = payload["tokens_a_page"]
    demand = Demand(2 * page, page, branches=2)
    with counter.count("first token"):
        backend.reserve(0, 1, 1, demand)
    with counter.count("to the page's end"):
        backend.extend(0, page)
    with counter.count("beyond it"):
        backend.extend(0, page + 1)
    with counter.count("fork"):
        backend.extend(0, page + 2, (0, 0))
    backend.check_integrity()
    with counter.count("end"):
        backend.free(0, page + 2)
    with counter.count("the next one"):
        backend.reserve(1, page + 1, page + 1, demand)
    backend.check_integrity()
    return {"calls": counter.found, "moves": backend.moves, "held": backend.usage().held}


def pages_are_stolen(payload: dict[str, Any]) -> dict[str, Any]:
    """8 rows, all left mapped by two ended sequences, of which a third one needs 4 and more."""
    backend, counter = started(GIB, reclaim="reuse"), Counter()
    for sequence in (0, 1):
        backend.reserve(sequence, 4096, 4096, Demand(4096, 1))
    for sequence in (1, 0):
        backend.free(sequence)
    with counter.count("a shorter one"):
        backend.reserve(2, 1024, 1024, Demand(8192, 1))
    free_rows = backend.usage().free / (128 << 20)
    with counter.count("grows to 4 rows"):
        backend.extend(2, 4096)
    with counter.count("grows to 6"):
        backend.extend(2, 6144)
    with counter.count("another one of 2"):
        backend.reserve(3, 2048, 2048, Demand(2048, 1))
    refused = backend.extend(2, 6145) is None
    backend.check_integrity()
    return {"calls": counter.found, "free_rows": free_rows, "refused": refused}


def spare_pages_of_the_living(payload: dict[str, Any]) -> dict[str, Any]:
    """A range of 6 rows is taken by a sequence that holds 1, and 4 are wanted where 2 are left."""
    backend, counter = started(GIB, reclaim="reuse"), Counter()
    backend.reserve(0, 6144, 6144, Demand(6144, 1))
    backend.free(0)
    backend.reserve(1, 1, 1, Demand(8192, 1))
    with counter.count("4 rows"):
        granted = backend.reserve(2, 4096, 4096, Demand(4096, 1)) is not None
    backend.check_integrity()
    with counter.count("to 4 rows"):
        grown = backend.extend(1, 4096) is not None
    backend.check_integrity()
    return {
        "calls": counter.found,
        "granted": granted,
        "grown": grown,
        "one_more": backend.extend(1, 4097) is not None,
    }


def idle_before_the_living(payload: dict[str, Any]) -> dict[str, dict[str, int]]:
    """3 of 8 rows are idle, 3 are in a range whose sequence holds 1, and 1 is mapped nowhere."""
    backend, counter = started(GIB, reclaim="reuse"), Counter()
    for sequence in (0, 1):
        backend.reserve(sequence, 3072, 3072, Demand(3072, 1))
    backend.free(0)
    backend.reserve(2, 1, 3072, Demand(3072, 1))
    backend.reserve(3, 1, 1, Demand(3072, 1))
    backend.free(1)
    with counter.count("lacks a row"):
        backend.extend(3, 3072)
    with counter.count("grows into its own"):
        backend.extend(2, 3072)
    backend.check_integrity()
    return counter.found


def life_and_death(payload: dict[str, Any]) -> dict[str, Any]:
    """Free device memory, in pages, before, during and after; the caching allocator sees none."""
    before = driver_free_bytes()
    backend = started(GIB + 12_345)
    during = driver_free_bytes()
    backend.reserve(0, 3000, 3000, Demand(3000, 1))
    backend.reserve(1, 10, 10, Demand(10, 10, branches=2))
    backend.extend(1, 11, (0, 0))
    backend.free(0)
    shown = backend.planes(1)
    first = shown[0]
    found = {
        "taken": (before - during) / (2 << 20),
        "mapping_takes": during - driver_free_bytes(),
        "allocated": torch.cuda.memory_allocated(),
        "planes": len(shown),
        "plane_bytes": first.numel(),
        "on_gpu": first.is_cuda,
        "stride": shown[1].data_ptr() - first.data_ptr(),
    }
    del backend, shown
    found["kept_by_a_view"] = before - driver_free_bytes() > 0
    del first
    return found | {"left": before - driver_free_bytes()}


def too_large(payload: dict[str, Any]) -> dict[str, Any]:
    """A budget that the card has not, and a driver whose pages are not those expected."""
    before = driver_free_bytes()
    found: dict[str, Any] = {"free_pages": before // (2 << 20)}
    try:
        started(before + GIB)
    except BackendError as error:
        found["too_many"] = str(error)
    pages.PAGE_BYTES = 64 << 10
    try:
        started(GIB)
    except BackendError as error:
        found["granularity"] = str(error)
    return found | {"left": before - driver_free_bytes()}
