"""Snapshots made by hand, and read as the command reads them: in a process of its own."""

from __future__ import annotations

import atexit
import functools
import pickle
from pathlib import Path
from typing import Any

from bench.device.launcher import Finished, Job, Launcher

MIB = 1 << 20


@functools.cache
def _launcher() -> Launcher:
    launcher = Launcher("cpu", modules=("bench.snapshots.reading",))
    atexit.register(launcher.close)
    return launcher


def read_in_process(snapshot: Path, out: Path, device_index: int | None = None) -> Finished:
    """How reading a snapshot ended."""
    payload = {"path": str(snapshot), "device_index": device_index, "out": str(out)}
    return _launcher().run(Job("bench.snapshots.reading:read", payload))


def write(path: Path, snapshot: Any) -> Path:
    """The snapshot as a file."""
    path.write_bytes(pickle.dumps(snapshot, protocol=4))
    return path


def event(action: str, address: int = 0, size: int = 0, **more: Any) -> dict[str, Any]:
    """A trace's entry, addresses and sizes in MiB."""
    return {"action": action, "addr": address * MIB, "size": size * MIB, "stream": 0} | more


def freed(address: int, size: int) -> list[dict[str, Any]]:
    """The two entries of a free."""
    return [event("free_requested", address, size), event("free_completed", address, size)]


def block(address: int, size: int, state: str = "active_allocated") -> dict[str, Any]:
    """A segment's block, in MiB."""
    return {
        "address": address * MIB,
        "size": size * MIB,
        "requested_size": size * MIB,
        "state": state,
    }


def segment(address: int, size: int, *blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A segment, in MiB."""
    own = {"device": 0, "address": address * MIB, "total_size": size * MIB, "stream": 0}
    return own | {"segment_type": "large", "blocks": list(blocks)} | more
