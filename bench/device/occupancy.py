"""The caching allocator's memory as a map: how full each part of what it reserved is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


def occupancy(segments: Iterable[Mapping[str, Any]], parts: int) -> list[int]:
    """Per cent of each of `parts` equal parts of reserved memory that tensors hold.

    Segments, those of `torch.cuda.memory_snapshot()`, are laid end to end in order of address.
    Blocks that wait for another stream count as held. Empty where nothing is reserved.
    """
    sizes, held = [0], [0]
    for segment in sorted(segments, key=lambda segment: segment["address"]):
        for block in segment["blocks"]:
            sizes.append(block["size"])
            held.append(0 if block["state"] == "inactive" else block["size"])
    ends = np.cumsum(sizes, dtype=float)
    if not ends[-1]:
        return []
    edges = np.linspace(0, ends[-1], parts + 1)
    shares = np.diff(np.interp(edges, ends, np.cumsum(held, dtype=float))) / (ends[-1] / parts)
    return [round(100 * share) for share in shares]
