"""What PyTorch's caching allocator looked like when it last refused memory.

PyTorch tells before it raises, when it has released every cached segment that it could: what is
then still cached is in segments that a live block keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from bench.device.stats import AllocatorReader, AllocatorStats


@dataclass(frozen=True, slots=True)
class FailedAllocation:
    """`tried_bytes` is what it asked the driver for, a request rounded up to a segment.
    `largest_free_bytes` is None where blocks were not walked."""

    tried_bytes: int
    stats: AllocatorStats
    largest_free_bytes: int | None


class FailureWatch:
    """Remembers the last refusal of this process. Walking all blocks takes milliseconds, so it is
    done once each time that `walks` is set."""

    def __init__(self, reader: AllocatorReader) -> None:
        self.last: FailedAllocation | None = None
        self.walks = True
        self._reader = reader
        bindings: Any = torch._C
        bindings._cuda_attach_out_of_memory_observer(self._refused)

    def _refused(self, device: int, tried_bytes: int, total_bytes: int, free_bytes: int) -> None:
        largest_free = self._reader.largest_free_bytes() if self.walks else None
        self.walks = False
        self.last = FailedAllocation(tried_bytes, self._reader.read(), largest_free)
