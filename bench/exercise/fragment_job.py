"""Fragments this process's memory and asks for one large tensor; what an allocation costs.

Runs in a process of its own, whose allocator nothing else has used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from bench.device.allocator_start import start_allocator
from bench.device.stats import AllocatorReader, DriverCalls, external_fragmentation
from bench.exercise.pieces import KINDS, pieces_of, total

MIB = 1 << 20
SMALL_SEGMENT_BYTES, SEGMENT_BYTES = 2 * MIB, 20 * MIB
"""Tensors up to 1 MiB share segments of the first size, those below 10 MiB of the second
(kSmallBuffer and kLargeBuffer). Larger ones have their own, in whole 2 MiB."""
SHOWN_BYTES = 2048 * MIB
"""Of all segments, in order of address, that the picture shows."""


class _Lab:
    """The allocator of this process, before anything was allocated."""

    def __init__(self) -> None:
        start_allocator()
        self.reader = AllocatorReader()
        self._calls = DriverCalls()

    def fill(self, nbytes: int) -> list[torch.Tensor]:
        """Tensors of this size until no more fit: in what is cached, then in new segments."""
        stats = self.reader.read()
        cached = (stats.reserved_bytes - stats.allocated_bytes) // nbytes
        tensors: list[torch.Tensor] = []
        try:
            for _ in range(cached + self._in_new_segments(nbytes, stats.driver_free_bytes)):
                tensors.append(_tensor(nbytes))
        except torch.OutOfMemoryError:  # a card's driver keeps some of what it calls free
            pass
        return tensors

    def _in_new_segments(self, nbytes: int, driver_free_bytes: int) -> int:
        if self.reader.expandable_segments:
            return driver_free_bytes // SEGMENT_BYTES * SEGMENT_BYTES // nbytes
        segment = _segment_bytes(nbytes)
        return driver_free_bytes // segment * (segment // nbytes)

    def state(self) -> dict[str, Any]:
        """What the allocator holds now. `non_releasable_bytes` is torch's own count, None under
        expandable segments; `stuck_bytes` is counted from the segments, either way."""
        stats = self.reader.read()
        pieces = [piece for segment in _segments() for piece in pieces_of(segment)]
        largest = self.reader.largest_free_bytes()
        return {
            "allocated_bytes": stats.allocated_bytes,
            "reserved_bytes": stats.reserved_bytes,
            "driver_free_bytes": stats.driver_free_bytes,
            "free_bytes": stats.total_free_bytes,
            "non_releasable_bytes": stats.inactive_split_bytes,
            **{f"{kind}_bytes": total(pieces, kind) for kind in KINDS},
            "largest_free_bytes": largest,
            "external_fragmentation": external_fragmentation(largest, stats.total_free_bytes),
            "num_alloc_retries": stats.num_alloc_retries,
            "num_ooms": stats.num_ooms,
        }

    def during(self, act: Callable[[], object]) -> dict[str, Any]:
        """Driver calls of `act`, by kind, and the host's seconds."""
        before, began_s = self._calls.read(), time.perf_counter()
        kept = act()
        host_s = time.perf_counter() - began_s
        calls = self._calls.read()
        del kept  # to free it is none of its cost
        made = {kind: n - before[kind] for kind, n in calls.items() if n > before[kind]}
        return {"driver_calls": made, "host_s": host_s}


def _segment_bytes(nbytes: int) -> int:
    """Of the segment that the allocator takes for a tensor of this size."""
    if nbytes <= MIB:
        return SMALL_SEGMENT_BYTES
    if nbytes < SEGMENT_BYTES // 2:
        return SEGMENT_BYTES
    return -(-nbytes // SMALL_SEGMENT_BYTES) * SMALL_SEGMENT_BYTES


def _own(lab: _Lab, sizes: Mapping[str, int]) -> list[torch.Tensor]:
    """Each tensor in a segment of its own."""
    return lab.fill(sizes["large_bytes"])


def _left(lab: _Lab, sizes: Mapping[str, int]) -> list[torch.Tensor]:
    """The same tensors in segments that larger buffers have left."""
    lab.fill(sizes["earlier_bytes"])  # and freed at once: their segments stay
    return lab.fill(sizes["large_bytes"])


def _shared(lab: _Lab, sizes: Mapping[str, int]) -> list[torch.Tensor]:
    """Small tensors, several to a segment."""
    return lab.fill(sizes["small_bytes"])


LAYOUTS = {"own": _own, "left": _left, "shared": _shared}


def fragment(payload: dict[str, Any]) -> dict[str, Any]:
    """Fills the card in a `layout`, frees every other tensor and asks for `request_bytes`."""
    lab = _Lab()
    tensors = LAYOUTS[payload["layout"]](lab, payload)
    count = len(tensors)
    del tensors[1::2]
    before = lab.state()
    summary = torch.cuda.memory_summary()
    shown = _first_pieces()
    kept: list[torch.Tensor] = []
    refusal = None

    def request() -> None:
        nonlocal refusal
        try:
            kept.append(_tensor(payload["request_bytes"]))
        except torch.OutOfMemoryError as error:
            refusal = str(error)

    cost = lab.during(request)
    return {
        "tensors": count,
        "freed": count - len(tensors),
        "before": before,
        "after": lab.state(),
        "refusal": refusal,
        "request": cost,
        "memory_summary": summary,
        "shown": shown,
    }


def _first_pieces() -> list[list[list[Any]]]:
    """The first SHOWN_BYTES of all segments: a list of [bytes, kind] each."""
    shown, left = [], SHOWN_BYTES
    for segment in _segments():
        if left <= 0:
            break
        shown.append([list(piece) for piece in pieces_of(segment)])
        left -= segment["total_size"]
    return shown


def _segments() -> list[dict[str, Any]]:
    segments: list[dict[str, Any]] = torch.cuda.memory._snapshot()["segments"]
    return sorted(segments, key=lambda segment: segment["address"])


def _tensor(nbytes: int) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device="cuda")


def measure_costs(payload: dict[str, Any]) -> list[dict[str, Any]]:
    """For each of `sizes_bytes`: driver calls of a new allocation and of one that finds cached
    memory, and the median of their host seconds; of `repeats` each."""
    lab = _Lab()
    kept = _tensor(SEGMENT_BYTES)  # so that addresses, where they are reserved, stay so
    costs = [_cost(lab, nbytes, payload["repeats"]) for nbytes in payload["sizes_bytes"]]
    del kept
    return costs


def _cost(lab: _Lab, nbytes: int, repeats: int) -> dict[str, Any]:
    new, cached = [], []
    for _ in range(repeats):
        new.append(lab.during(lambda: _tensor(nbytes)))
        cached.append(lab.during(lambda: _tensor(nbytes)))
        torch.cuda.empty_cache()
    return {
        "bytes": nbytes,
        **{
            name: {
                "driver_calls": made[-1]["driver_calls"],
                "host_s": sorted(each["host_s"] for each in made)[repeats // 2],
            }
            for name, made in (("new", new), ("cached", cached))
        },
    }
