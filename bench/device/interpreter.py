"""Another Python than this one, for jobs that need an environment of their own."""

from __future__ import annotations

from typing import NamedTuple

from bench.device.build import VirtualGpuLibraries


class Interpreter(NamedTuple):
    """A Python that has fragbench installed, and the virtual GPU for the PyTorch that it has."""

    executable: str
    libraries: VirtualGpuLibraries | None
