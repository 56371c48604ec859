"""KV memory accounting: what held memory was for, known only when the request ends.

While a sequence lives, slots it holds beyond its live tokens are `unfilled`. When its hold ends
with F tokens filled in each branch, they split: `reservation` are the slots it went on to fill
(below F), `internal` those that it never filled (above F). A preemption or a cancellation ends a
hold too, and what it had not filled by then counts as internal. Holds still open at the end of a
run are `undetermined`. (PagedAttention, section 3.1 and figure 2.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from backends.base import Usage


class HasTokens(Protocol):
    """A sequence as the account sees it."""

    @property
    def id(self) -> int: ...
    @property
    def tokens(self) -> int: ...


class _Span:
    """Part of a hold with constant slots, of so many branches: its memory-bound time, and live
    tokens x that time."""

    __slots__ = ("branches", "slots", "time_s", "token_s")

    def __init__(self, slots: int, branches: int) -> None:
        self.slots = slots
        self.branches = branches
        self.time_s = 0.0
        self.token_s = 0.0

    def fillable(self, filled: int) -> int:
        """Slots that are filled in the end, with `filled` tokens in each branch."""
        return min(self.slots, filled * self.branches)


class _Hold:
    """A sequence's memory from reserve to free; `seen` has (sample, span, tokens) of samples."""

    __slots__ = ("ended_spans", "seen", "span")

    def __init__(self, span: _Span) -> None:
        self.span = span
        self.ended_spans: list[_Span] = []
        self.seen: list[tuple[int, _Span, int]] = []


@dataclass(slots=True)
class Split:
    """Unfilled slots (or slots x seconds) by what they turned out to be."""

    reservation: float = 0
    internal: float = 0
    undetermined: float = 0


@dataclass(slots=True)
class BoundIntegrals:
    """Integrals over memory-bound time, in byte-seconds unless named otherwise."""

    time_s: float = 0.0
    sequence_s: float = 0.0
    token_states: float = 0.0
    held: float = 0.0
    rounding: float = 0.0
    cached: float = 0.0
    free: float = 0.0
    unfilled: Split = field(default_factory=Split)  # slot-seconds


class MemoryAccount:
    """Integrates KV memory over a run and splits what was unfilled."""

    def __init__(self, token_bytes: int, budget_bytes: int) -> None:
        self.token_bytes = token_bytes
        self.budget_bytes = budget_bytes
        self.bound = BoundIntegrals()
        self.time_s = 0.0
        self.held_byte_s = 0.0
        self.token_byte_s = 0.0
        self.shared_byte_s = 0.0
        self.samples: list[Split] = []
        """Of all samples, but for those that were taken."""
        self._taken = 0
        self._holds: dict[int, _Hold] = {}

    def opened(self, sequence: int, slots: int, branches: int = 1) -> None:
        """A sequence reserved its first slots, which are of so many branches."""
        self._holds[sequence] = _Hold(_Span(slots, branches))

    def resized(self, sequence: int, slots: int, branches: int = 1) -> None:
        """A sequence holds another number of slots from now on."""
        hold = self._holds[sequence]
        if slots != hold.span.slots or branches != hold.span.branches:
            hold.ended_spans.append(hold.span)
            hold.span = _Span(slots, branches)

    def closed(self, sequence: int, filled: int) -> None:
        """A hold ended with `filled` live tokens in each branch: its unfilled slots can be told
        apart."""
        hold = self._holds.pop(sequence)
        for span in (*hold.ended_spans, hold.span):
            fillable = span.fillable(filled)
            self.bound.unfilled.reservation += fillable * span.time_s - span.token_s
            self.bound.unfilled.internal += (span.slots - fillable) * span.time_s
        for sample, span, tokens in hold.seen:
            fillable = span.fillable(filled)
            self.samples[sample - self._taken].reservation += fillable - tokens
            self.samples[sample - self._taken].internal += span.slots - fillable

    def observe(
        self,
        running: Iterable[HasTokens],
        duration_s: float,
        usage: Usage,
        token_states: int,
        sequences: int,
        memory_bound: bool,
    ) -> None:
        """A step of `duration_s` during which `token_states` slots held a live token."""
        token_bytes = token_states * self.token_bytes
        self.time_s += duration_s
        self.held_byte_s += usage.held * duration_s
        self.token_byte_s += token_bytes * duration_s
        self.shared_byte_s += usage.shared * duration_s
        if not memory_bound:
            return
        bound = self.bound
        bound.time_s += duration_s
        bound.sequence_s += sequences * duration_s
        bound.token_states += token_bytes * duration_s
        bound.held += usage.held * duration_s
        bound.rounding += usage.rounding * duration_s
        bound.cached += usage.cached * duration_s
        bound.free += usage.free * duration_s
        holds = self._holds
        for sequence in running:
            span = holds[sequence.id].span
            span.time_s += duration_s
            span.token_s += sequence.tokens * duration_s

    def sample(self, running: Iterable[HasTokens]) -> int:
        """Notes what each hold has unfilled now; returns the sample's number, from 0."""
        number = self._taken + len(self.samples)
        self.samples.append(Split())
        for sequence in running:
            hold = self._holds[sequence.id]
            hold.seen.append((number, hold.span, sequence.tokens))
        return number

    def settled(self) -> int:
        """Samples from 0 up to this number can no longer change."""
        oldest = (hold.seen[0][0] for hold in self._holds.values() if hold.seen)
        return min(oldest, default=self._taken + len(self.samples))

    def take_settled(self) -> list[Split]:
        """Those samples that were not taken before; nothing is known of them any more."""
        count = self.settled() - self._taken
        taken, self.samples = self.samples[:count], self.samples[count:]
        self._taken += count
        return taken

    def finish(self) -> None:
        """Ends the run: what open holds have unfilled stays undetermined."""
        for hold in self._holds.values():
            for span in (*hold.ended_spans, hold.span):
                self.bound.unfilled.undetermined += span.slots * span.time_s - span.token_s
            for sample, span, tokens in hold.seen:
                self.samples[sample - self._taken].undetermined += span.slots - tokens
        self._holds.clear()
