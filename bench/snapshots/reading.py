"""Reads a snapshot, a file that a stranger may have made, in a process of its own that imports
nothing of what it could make use of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.errors import SettingError
from bench.snapshots.before import read_history, traces_of
from bench.snapshots.plain_pickle import BROKEN, DUMP, limit_process, load_plain
from bench.snapshots.recorded_settings import recorded_conf
from bench.snapshots.releases import reserved_after, room_bytes
from bench.snapshots.steps import read_steps
from bench.snapshots.stored import save
from bench.snapshots.trace import Action, History

MOST_BYTES = 1 << 48
"""Beyond the addresses of any GPU."""


def read(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Reads the file `path`, of it the device `device_index` (None: the one that there is), and
    leaves its history and steps in `out`. Returns what the report says of it. Raises
    SettingError."""
    path = Path(payload["path"])
    limit_process(path)
    snapshot = load_plain(path)
    try:
        device = _device(snapshot, payload["device_index"], path)
        history = read_history(snapshot, device)
        conf = recorded_conf(snapshot)
        _check(history)
        steps = read_steps(history)
    except SettingError:
        raise
    except BROKEN as error:
        raise SettingError(
            f"{path} is no memory snapshot of PyTorch: it lacks something, or has it in another "
            f"form ({type(error).__name__}: {str(error)[:80]}); dump one with {DUMP}."
        ) from error
    save(Path(payload["out"]), history, steps)
    return {"device_index": device, "alloc_conf": conf, "steps": len(steps.table)} | facts(history)


def facts(history: History) -> dict[str, Any]:
    """What is known of a recorded history, in bytes and counts; null where it is not."""
    rows, reserved = history.rows, reserved_after(history)
    known = len(history.segments) or bool((rows["action"] == Action.SEGMENT_ALLOC).any())
    held = np.where(rows["action"] == Action.ALLOC, rows["size"].astype(np.int64), 0) - np.where(
        rows["action"] == Action.FREE_COMPLETED, rows["size"].astype(np.int64), 0
    )
    start = int(history.blocks["requested"].sum())
    streams = {*history.blocks["stream"].tolist(), *rows["stream"].tolist()}
    pools = {*history.blocks["pool"].tolist(), *rows["pool"].tolist()}
    return {
        "events": len(rows),
        "blocks_before": len(history.blocks),
        "bytes_before": start,
        "peak_requested_bytes": start + int(held.cumsum().max(initial=0)),
        "peak_reserved_bytes": _peak_reserved(history, reserved) if known else None,
        "num_ooms": int((rows["action"] == Action.OOM).sum()),
        "room_bytes": room_bytes(history, reserved),
        "streams": max(len(streams), 1),
        "private_pools": len(pools - {0}),
    }


def _peak_reserved(history: History, reserved: np.ndarray[Any, np.dtype[np.int64]]) -> int:
    return max(int(history.segments["size"].sum()), int(reserved.max(initial=0)))


def _device(snapshot: Any, wanted: int | None, path: Path) -> int:
    traces = traces_of(snapshot)
    eventful = [index for index, trace in enumerate(traces) if trace]
    all_segments = snapshot if isinstance(snapshot, list) else snapshot["segments"]
    holding = sorted({int(each.get("device", 0)) for each in all_segments})
    used = sorted({*eventful, *holding})
    if not used:
        raise SettingError(
            f"{path} has neither a history nor memory in use: switch recording on with "
            "torch.cuda.memory._record_memory_history() before what you want to see."
        )
    names = ", ".join(map(str, used))
    if wanted is not None and wanted not in used:
        raise SettingError(f"device_index={wanted} has nothing in {path}: choose from {names}.")
    if wanted is None and len(eventful or holding) > 1:
        raise SettingError(
            f"{path} has {len(eventful or holding)} devices: choose one with device_index=, "
            f"from {names}."
        )
    return (eventful or holding)[0] if wanted is None else wanted


def _check(history: History) -> None:
    for table in (history.rows, history.blocks, history.segments):
        for column in ("address", "size"):
            if len(table) and int(table[column].max()) > MOST_BYTES:
                raise ValueError(f"{column} {int(table[column].max())} is beyond any GPU's")
