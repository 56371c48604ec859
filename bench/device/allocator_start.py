"""Starts PyTorch's allocator in this process, with the settings of its environment."""

from __future__ import annotations

import os
from typing import Any

import torch

from bench.errors import SettingError


def start_allocator() -> None:
    """Starts CUDA, which reads the allocator's settings. Raises SettingError if it cannot."""
    try:
        cuda: Any = torch.cuda
        cuda.init()
    except (RuntimeError, ValueError) as error:
        settings = os.environ.get("PYTORCH_ALLOC_CONF", "")
        why = str(error).splitlines()[0].rstrip(".")
        raise SettingError(
            f"alloc_conf={settings} cannot be used: PyTorch says: {why}; write "
            "option:value[,option:value], such as expandable_segments:True."
        ) from error
