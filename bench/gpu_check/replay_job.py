"""Replays a recorded allocation sequence in this process's caching allocator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bench.device.history import Event
from bench.snapshots.replayer import Replayer


def replay_events(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A bench.gpu_check.events.Replay as a dict, for the payload's `events`. The allocator may
    take `limit_bytes` from the driver (None: no limit): beyond it gives back what it caches, as
    on a full card, and refuses what then still does not fit."""
    torch.cuda.init()  # type: ignore[no-untyped-call]
    if payload["limit_bytes"] is not None:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(payload["limit_bytes"] / total)
    assert torch.cuda.memory_reserved(0) == 0, "the allocator was used before the replay"
    found = _replay(payload["events"])
    return found | {"retries": torch._C._cuda_memoryStats(0)["num_alloc_retries"]}


def _replay(events: Sequence[Event]) -> dict[str, Any]:
    replayer = Replayer()
    allocated, reserved, addresses = [], [], []
    for index, size in events:
        address = replayer.alloc(index, size) if index >= 0 else replayer.free(~index)
        stats = torch._C._cuda_memoryStats(0)
        allocated.append(stats["allocated_bytes"]["all"]["current"])
        reserved.append(stats["reserved_bytes"]["all"]["current"])
        addresses.append(address)
    return {
        "allocated": allocated,
        "reserved": reserved,
        "addresses": addresses,
        "refused": replayer.refused,
    }
