"""Requests of a workload, later turns too, counted before a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from workloads.base import Request

MOST_COUNTED = 200_000
"""About a second of drawing; a workload that has more is not counted."""


def turns(first_turns: Iterable[Request]) -> Iterator[Request]:
    """Each first turn and those that follow it."""
    for first in first_turns:
        turn: Request | None = first
        while turn is not None:
            yield turn
            turn = turn.next_turn
