"""Versions and the machine, for whoever repeats a run."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("triton", "hydra-core", "numpy", "pandas", "pyarrow", "transformers", "vllm")
CHECKOUT = Path(__file__).parents[1]


def environment(command: list[str]) -> dict[str, Any]:
    """Versions and the machine, and the command as it was typed."""
    return {
        "command": command,
        "fragbench": _version("fragbench"),
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "packages": {name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "alloc_conf": os.environ.get("PYTORCH_ALLOC_CONF", ""),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The checkout's commit, `-dirty` with changes of its own; None where there is none."""
    if not (CHECKOUT / ".git").exists():
        return None
    command = ["git", "-C", str(CHECKOUT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
