"""Versions and the machine, for whoever repeats a run."""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch


def environment() -> dict[str, Any]:
    """Versions and the machine, for whoever repeats a run."""
    return {
        "fragbench": _version("fragbench"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "packages": {
            name: _version(name) for name in ("triton", "hydra-core", "numpy", "pandas", "pyarrow")
        },
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "alloc_conf": os.environ.get("PYTORCH_ALLOC_CONF", ""),
        "command": sys.argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
