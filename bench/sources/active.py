"""The sources that are switched on in a run, as the engine and the records see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from backends.base import Others
from bench.costs import StepWork
from bench.engine.incidents import IncidentLog
from bench.engine.sequence import Sequence as EngineSequence
from bench.sources.base import Served, Source
from bench.sources.room import Headroom, Room


class Sources:
    """Passes on what a run does, and reads after each source what it holds in the allocator. With
    none it does nothing."""

    incidents: IncidentLog | None = None
    """Where refusals are told, if anywhere."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = dict(sources)
        self._rooms: dict[str, Room] = {}
        self._headroom = Headroom(0)
        self._others = Others()
        self._now = 0.0

    @property
    def are_on(self) -> bool:
        """Whether there is any."""
        return bool(self._sources)

    def plan(self, served: Served) -> int:
        """Bytes to set aside before KV memory is divided."""
        self._served = served
        return sum(source.planned_bytes(served) for source in self._sources.values())

    def start(self, headroom_bytes: int) -> None:
        """The card is divided; sources may hold so much beside what was planned for them."""
        self._headroom.limit_bytes = headroom_bytes
        for name, source in self._sources.items():
            self._rooms[name] = Room(self._headroom, source.planned_bytes(self._served))
            source.start(self._served, self._rooms[name])

    def step_begins(self, now: float, sequences: Sequence[EngineSequence], work: StepWork) -> None:
        """A step from `now` on was scheduled."""
        self._now = now
        self._each(lambda source: source.step_begins(sequences, work))

    def step_ended(self, sequences: Sequence[EngineSequence], work: StepWork) -> None:
        """The step's activations are gone."""
        self._each(lambda source: source.step_ended(sequences, work))

    def left(self, sequence: EngineSequence) -> None:
        """A sequence lost its memory."""
        self._headroom.frees += 1
        self._each(lambda source: source.left(sequence.id))

    def stop(self) -> None:
        """The run is over: everything is given back."""
        self._each(lambda source: source.stop())
        for room in self._rooms.values():
            room.give_all()
        self._others = Others()

    def _each(self, tell: Callable[[Source], None]) -> None:
        if not self._sources:
            return
        before = _read()
        for name, source in self._sources.items():
            room = self._rooms[name]
            refused, allocations = room.refused, room.allocations
            tell(source)
            if room.refused > refused:
                self._note_refusals(name, room.refused - refused)
            elif room.allocations > allocations and self.incidents is not None:
                self.incidents.source_served(name, self._now)
        now = _read()
        self._others = Others(
            self._others.allocated + now.allocated - before.allocated,
            self._others.requested + now.requested - before.requested,
        )

    def _note_refusals(self, name: str, refusals: int) -> None:
        if self.incidents is not None:
            self.incidents.source_refused(name, self._rooms[name], refusals, self._now)

    def others(self) -> Others:
        """What sources hold, for a backend that shares the allocator with them."""
        return self._others

    @property
    def moves(self) -> int:
        """How often sources moved memory: what makes activations find another allocator."""
        return sum(room.moves for room in self._rooms.values())

    def rows(self, time_s: float) -> list[dict[str, Any]]:
        """What each source holds now: a row of bench.metrics.records.SOURCES each."""
        return [
            {"time_s": time_s, "source": name, "held_bytes": room.held_bytes,
             "allocations": room.allocations, "refused": room.refused}
            for name, room in self._rooms.items()
        ]  # fmt: skip

    def summary(self) -> dict[str, dict[str, int]]:
        """summary.json's `sources`: peaks and counts, by source."""
        return {
            name: {"peak_bytes": room.peak_bytes, "allocations": room.allocations,
                   "refused": room.refused, **self._sources[name].counts()}
            for name, room in self._rooms.items()
        }  # fmt: skip


def _read() -> Others:
    stats: dict[str, Any] = torch._C._cuda_memoryStats(0)
    return Others(
        stats["allocated_bytes"]["all"]["current"], stats["requested_bytes"]["all"]["current"]
    )
