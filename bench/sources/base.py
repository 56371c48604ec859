"""The contract of a fragmentation source: what it hears of a run, and what it may do.

A source makes the allocations that one feature of a server makes, real ones, in the caching
allocator that activations use. Nothing is computed with them: tokens, and the time that the
feature itself would take, stay as they are, but for the driver's calls, which are charged to the
step they happen in.

A source takes memory from its room alone (bench/sources/room.py), gives back what it holds for a
sequence when that leaves, draws from streams of the run's seed, and never touches a sequence. A
room refuses what the allocator or its limit refuses: the source then does without, as its class
says, and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.costs import StepWork
from bench.engine.sequence import Sequence as EngineSequence
from bench.model.shape import ModelShape
from bench.sources.room import Room


@dataclass(frozen=True, slots=True)
class Served:
    """What is served, and how much of it at once. `kv_token_bytes` is K and V of one token in all
    layers on this GPU; `max_rows` the most rows that a step samples; `run_step` takes the
    activations of a step of so many tokens and sampled rows, and lets them go."""

    model: ModelShape
    tensor_parallel: int
    kv_token_bytes: int
    max_rows: int
    seed: int
    run_step: Callable[[int, int], None]


class Source(Protocol):
    """One cause of fragmentation."""

    def planned_bytes(self, served: Served) -> int:
        """What a server sets aside for it before KV memory is divided, in bytes. 0: it takes its
        memory from the headroom that `utilization` leaves."""
        ...

    def start(self, served: Served, room: Room) -> None:
        """The run begins."""
        ...

    def step_begins(self, sequences: Sequence[EngineSequence], work: StepWork) -> None:
        """These compute a step, each its `chunk`, which is `work` in all; its activations come
        next."""
        ...

    def step_ended(self, sequences: Sequence[EngineSequence], work: StepWork) -> None:
        """The step's activations are gone, its tokens not yet counted. A sequence that was
        preempted for their sake is missing here."""
        ...

    def left(self, sequence: int) -> None:
        """A sequence lost its memory: it ended or was preempted, and may come back later."""
        ...

    def stop(self) -> None:
        """The run is over. What was taken from the room is given back without the source."""
        ...

    def counts(self) -> Mapping[str, int]:
        """What it counted, by name, for summary.json."""
        ...


class Quiet:
    """What a source does where there is nothing to do."""

    def planned_bytes(self, served: Served) -> int:
        return 0

    def step_begins(self, sequences: Sequence[EngineSequence], work: StepWork) -> None:
        """Nothing is taken before activations."""

    def step_ended(self, sequences: Sequence[EngineSequence], work: StepWork) -> None:
        """Nothing is taken or given after activations."""

    def left(self, sequence: int) -> None:
        """Nothing is held for a sequence."""

    def stop(self) -> None:
        """Nothing is held but blocks of the room."""

    def counts(self) -> Mapping[str, int]:
        return {}


def decodes(sequence: EngineSequence) -> bool:
    """Whether the step gives the sequence a token after its first: no part of its prompt."""
    return sequence.generated > 0 and sequence.chunk == 1


def written_tokens(sequence: EngineSequence) -> int:
    """Tokens that each branch will have K and V of after the step."""
    return sequence.computed + sequence.chunk
