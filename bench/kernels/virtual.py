"""Whether this process is on the virtual GPU, where kernels do nothing and events measure 0."""

from __future__ import annotations

import ctypes

REFUSAL = (
    "kernels do nothing on the virtual GPU, so there is nothing to measure and nothing was run: "
    "start `fragbench kernels` on a machine with an NVIDIA GPU, outside `fragbench exec`."
)


def on_virtual_gpu() -> bool:
    """Its library is the only one that counts calls under this name."""
    return hasattr(ctypes.CDLL(None), "fragbench_counters")
