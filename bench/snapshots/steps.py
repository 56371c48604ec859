"""What a program asked of its allocator, taken from what the allocator did.

That is what is replayed: allocations, frees, attempts that were refused, caches that were emptied.
What the allocator did of itself (segments taken, and given back for want of memory) is left out:
under other settings it does something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from bench.snapshots.releases import released_by_program
from bench.snapshots.trace import DEFAULT_POOL, Action, History, Table


class Op(IntEnum):
    """What a step does. `number` is that of an allocation; those that were there before come
    first, in the order of History.blocks."""

    ALLOC = 0
    FREE = 1
    """At once, in a history that has one event for it."""
    REQUEST_FREE = 2
    """From here on it does not count as allocated."""
    COMPLETE_FREE = 3
    """From here on it can be used again: at once, unless another stream still used it."""
    REFUSED = 4
    """An allocation that did not fit where this was recorded."""
    EMPTY_CACHE = 5
    DROP_POOL = 6


STEP = np.dtype([("op", "u1"), ("number", "i8"), ("size", "u8"), ("stream", "i8"), ("pool", "i4")])


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """`table` (of dtype STEP), and for each row of the history the step that it belongs to."""

    table: Table
    step_of_row: NDArray[np.int64]


def read_steps(history: History) -> Steps:
    """The steps of a history."""
    reading = _Reading(history)
    for place in range(len(history.rows)):
        reading.read(place)
    return Steps(np.array(reading.steps, STEP), np.array(reading.step_of_row, np.int64))


class _Reading:
    def __init__(self, history: History) -> None:
        self.steps: list[tuple[int, int, int, int, int]] = []
        self.step_of_row: list[int] = []
        self._rows: list[tuple[int, ...]] = history.rows.tolist()
        blocks = history.blocks.tolist()
        self._live = {block[0]: number for number, block in enumerate(blocks)}
        self._pending = {block[0] for block in blocks if block[-1]}
        self._count = len(blocks)
        self._completes = bool((history.rows["action"] == Action.FREE_COMPLETED).any())
        self._released = released_by_program(history)

    def read(self, place: int) -> None:
        """Adds the step of a row, if it is one. A row that is none belongs to the next."""
        action, address, size, stream, pool, *_ = self._rows[place]
        self.step_of_row.append(len(self.steps))
        if action == Action.ALLOC:
            self._live[address] = self._count
            self._add(Op.ALLOC, self._count, size, stream, pool)
            self._count += 1
        elif action == Action.FREE_REQUESTED and address in self._live:
            self._request(address)
        elif action == Action.FREE_COMPLETED and address in self._live:
            op = Op.COMPLETE_FREE if address in self._pending else Op.FREE
            self._pending.discard(address)
            self._add(op, self._live.pop(address))
        elif action == Action.OOM:
            self._add(Op.REFUSED, -1, size, stream, pool)
        elif place in self._released:
            for each in self._released[place]:
                op = Op.EMPTY_CACHE if each == DEFAULT_POOL else Op.DROP_POOL
                self._add(op, -1, pool=each)

    def _request(self, address: int) -> None:
        if self._completes:
            self._pending.add(address)
            self._add(Op.REQUEST_FREE, self._live[address])
        else:  # completed frees were not recorded
            self._add(Op.FREE, self._live.pop(address))

    def _add(self, op: Op, number: int, size: int = 0, stream: int = 0, pool: int = 0) -> None:
        self.steps.append((op, number, size, stream, pool))
