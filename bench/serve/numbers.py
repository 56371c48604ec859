"""Numbers that were given to requests, so that none is given twice."""

from __future__ import annotations


class Numbers:
    """Those taken so far: all below a mark, and single ones above it. A load generator counts up,
    so that few are kept however many there were."""

    def __init__(self) -> None:
        self._below = 0
        self._above: set[int] = set()

    def take(self, number: int) -> bool:
        """Whether nobody took the number before, from 0 up."""
        if number < self._below or number in self._above:
            return False
        self._above.add(number)
        while self._below in self._above:
            self._above.remove(self._below)
            self._below += 1
        return True

    def __len__(self) -> int:
        """How many are kept one by one."""
        return len(self._above)
