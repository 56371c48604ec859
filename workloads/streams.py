"""Independent random streams: one a purpose, all from the run's one seed."""

from __future__ import annotations

import zlib

import numpy as np

from workloads.settings import count


def stream(seed: int, purpose: str) -> np.random.Generator:
    """The generator for one purpose, such as `arrivals` or `lengths/chat/prompt`.

    The purpose's name, not the order of calls, selects the stream (a SeedSequence spawn key): what
    one part draws, or whether it draws at all, leaves every other part's numbers alone. 0 is a
    seed like any other. Raises WorkloadError for anything but a whole number in [0, 2^64).
    """
    count("seed", seed, 0, 2**64 - 1, "(a seed has no unit)", "use a seed such as 0")
    sequence = np.random.SeedSequence(seed, spawn_key=(zlib.crc32(purpose.encode()),))
    return np.random.Generator(np.random.PCG64(sequence))
