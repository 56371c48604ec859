"""The contract of a survivor process: who goes on from whom in a beam search that is not run.

No model is run, so beams need a random process in place of their scores. The processes here are
stated in full and fitted to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

MAX_BRANCHES = 256
CHUNK = 64
"""Steps drawn at a time."""


@runtime_checkable
class SurvivorProcess(Protocol):
    """How `width` beams are chosen at each step."""

    max_width: int

    def steps(self, seed: int, request_id: int, width: int) -> Iterator[tuple[int, ...]]:
        """The parents of the `width` survivors for each step after the first, without end: the
        same for the same arguments. A beam that survives keeps its number."""
        ...


def in_place(parents: Sequence[int]) -> list[int]:
    """An order of the survivors, as indices of `parents`, where each beam that survives stays
    where it was: its first survivor is at its place, further ones at the places of lost beams.

    Which survivor has which number means nothing to a search. A server numbers them so, for it
    then forks a beam only for the second and further survivors that go on from it.
    """
    firsts: dict[int, int] = {}
    further = []
    for survivor, beam in enumerate(parents):
        if firsts.setdefault(beam, survivor) != survivor:
            further.append(survivor)
    return [firsts[beam] if beam in firsts else further.pop() for beam in range(len(parents))]
