"""Counts of sizes by powers of two: a histogram whose buckets need no choosing."""

from __future__ import annotations

from collections import Counter
from typing import Any


class Tally:
    """How many sizes there were of at most 1, 2, 4, 8 ... and above half of it, and their sum."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.sum = 0

    def add(self, size: int, times: int = 1) -> None:
        """Counts a size, which is not negative, so often."""
        self.counts[1 << max(size - 1, 0).bit_length()] += times
        self.sum += size * times

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it: counts by the upper ends of their buckets, ascending."""
        counts = {str(bound): self.counts[bound] for bound in sorted(self.counts)}
        return {"counts": counts, "sum": self.sum}
