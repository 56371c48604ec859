"""Looks at the card, in a process of its own: it starts CUDA."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Any

import torch


def read_card(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A Card as a dict, of a card that computes. Raises RuntimeError for one that does not."""
    ones = torch.ones(256, 256, device="cuda")
    found = (ones @ ones).sum().item()
    if found != 256**3:
        raise RuntimeError(f"it computes wrongly: a sum of {256**3:,} ones came to {found:,.0f}")
    return describe_card(payload)


def describe_card(payload: Mapping[str, Any]) -> dict[str, Any]:
    """What of this process's allocator is on the card counts as free."""
    free_bytes, total_bytes = torch.cuda.mem_get_info(0)
    free_bytes += torch.cuda.memory_reserved(0)
    major, minor = torch.cuda.get_device_capability(0)
    return {
        "name": torch.cuda.get_device_name(0),
        "total_bytes": total_bytes,
        "free_bytes": free_bytes,
        "compute_capability": f"{major}.{minor}",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "driver": _driver(),
    }


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "driver unknown"
    lines = done.stdout.split()
    return f"driver {lines[0]}" if done.returncode == 0 and lines else "driver unknown"
