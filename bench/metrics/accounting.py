"""KV memory accounting: what held memory was for, known only when the request ends.

While a sequence lives, slots it holds beyond its live tokens are `unfilled`. When its hold ends
with F tokens filled in each branch, they split: `reservation` are the slots it went on to fill
(below F), `internal` those that it never filled (above F). A preemption or a cancellation ends a
hold too, and what it had not filled by then counts as internal. Holds still open at the end of a
run are `undetermined`. (PagedAttention, section 3.1 and figure 2.)
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from backends.base import Usage

FIRST_ROWS = 64


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
    """A sequence's memory from reserve to free; `seen` has (sample, span, tokens) of samples.

    It has `tokens` live tokens after so many steps of the account, and `per_step` more after each
    step from then on. Integrals of its last span are in the account's row `row`.
    """

    __slots__ = ("ended_spans", "per_step", "row", "seen", "span", "tokens_at_start")

    def __init__(self, span: _Span, row: int) -> None:
        self.span = span
        self.row = row
        self.ended_spans: list[_Span] = []
        self.seen: list[tuple[int, _Span, int]] = []
        self.per_step = 0
        self.tokens_at_start = 0
        """Live tokens, counted back to step 0 of the account by `per_step`."""


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
        self.live_tokens = 0
        """Of all holds, shared ones counted for each."""
        self._taken = 0
        self._holds: dict[int, _Hold] = {}
        self._steps = 0
        self._growing = 0
        self._free_rows: list[int] = []
        self._rows = _Rows(0)

    def opened(self, sequence: int, slots: int, branches: int = 1) -> None:
        """A sequence reserved its first slots, which are of so many branches."""
        if not self._free_rows:
            self._free_rows = self._rows.grow()
        row = self._free_rows.pop()
        self._rows.take(row)  # time that passed while it was free
        self._holds[sequence] = _Hold(_Span(slots, branches), row)

    def filled(self, sequence: int, tokens: int, per_step: int = 0) -> None:
        """A sequence has `tokens` live tokens in all of its branches, and from now on so many more
        after each step."""
        hold = self._holds[sequence]
        at_start = tokens - per_step * self._steps
        self.live_tokens += tokens - self._tokens(hold)
        self._growing += per_step - hold.per_step
        hold.tokens_at_start, hold.per_step = at_start, per_step
        self._rows.tokens[hold.row], self._rows.per_step[hold.row] = at_start, per_step

    def _tokens(self, hold: _Hold) -> int:
        return hold.tokens_at_start + hold.per_step * self._steps

    def stepped(self) -> None:
        """What grows by the step has grown."""
        self._steps += 1
        self.live_tokens += self._growing

    def resized(self, sequence: int, slots: int, branches: int = 1) -> None:
        """A sequence holds another number of slots from now on."""
        hold = self._holds[sequence]
        if slots != hold.span.slots or branches != hold.span.branches:
            self._end_span(hold)
            hold.span = _Span(slots, branches)

    def _end_span(self, hold: _Hold) -> None:
        span = hold.span
        span.time_s, span.token_s = self._rows.take(hold.row)
        if span.time_s:  # else it adds nothing
            hold.ended_spans.append(span)

    def closed(self, sequence: int, filled: int) -> None:
        """A hold ended with `filled` live tokens in each branch: its unfilled slots can be told
        apart."""
        self.filled(sequence, 0)
        hold = self._holds.pop(sequence)
        self._end_span(hold)
        self._free_rows.append(hold.row)
        for span in hold.ended_spans:
            fillable = span.fillable(filled)
            self.bound.unfilled.reservation += fillable * span.time_s - span.token_s
            self.bound.unfilled.internal += (span.slots - fillable) * span.time_s
        for sample, span, tokens in hold.seen:
            fillable = span.fillable(filled)
            self.samples[sample - self._taken].reservation += fillable - tokens
            self.samples[sample - self._taken].internal += span.slots - fillable

    def observe(self, duration_s: float, usage: Usage, memory_bound: bool) -> None:
        """A step of `duration_s` that left memory so."""
        token_bytes = self.live_tokens * self.token_bytes - usage.shared
        self.time_s += duration_s
        self.held_byte_s += usage.held * duration_s
        self.token_byte_s += token_bytes * duration_s
        self.shared_byte_s += usage.shared * duration_s
        if not memory_bound:
            return
        bound = self.bound
        bound.time_s += duration_s
        bound.sequence_s += len(self._holds) * duration_s
        bound.token_states += token_bytes * duration_s
        bound.held += usage.held * duration_s
        bound.rounding += usage.rounding * duration_s
        bound.cached += usage.cached * duration_s
        bound.free += usage.free * duration_s
        self._rows.last(duration_s, self._steps)

    def sample(self) -> int:
        """Notes what each hold has unfilled now; returns the sample's number, from 0."""
        number = self._taken + len(self.samples)
        self.samples.append(Split())
        for hold in self._holds.values():
            hold.seen.append((number, hold.span, self._tokens(hold)))
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
            self._end_span(hold)
            for span in hold.ended_spans:
                self.bound.unfilled.undetermined += span.slots * span.time_s - span.token_s
            for sample, span, tokens in hold.seen:
                self.samples[sample - self._taken].undetermined += span.slots - tokens
        self._holds.clear()


class _Rows:
    """Memory-bound time and live tokens x that time of each hold's last span, as arrays: a step
    adds to all of them at once."""

    def __init__(self, rows: int) -> None:
        self.tokens = np.zeros(rows, dtype=np.int64)  # at step 0, by `per_step`
        self.per_step = np.zeros(rows, dtype=np.int64)
        self._time_s = np.zeros(rows)
        self._token_s = np.zeros(rows)

    def grow(self) -> list[int]:
        """Makes room for as many rows again; returns the new ones, first one last."""
        rows = len(self.tokens)
        more = max(rows, FIRST_ROWS)
        for name, array in list(vars(self).items()):
            setattr(self, name, np.concatenate([array, np.zeros(more, dtype=array.dtype)]))
        return list(reversed(range(rows, rows + more)))

    def last(self, duration_s: float, steps: int) -> None:
        """A memory-bound step passed, the account's number `steps`."""
        self._time_s += duration_s
        self._token_s += (self.tokens + self.per_step * steps) * duration_s

    def take(self, row: int) -> tuple[float, float]:
        """Time and tokens x time of a row, which is at 0 then."""
        taken = float(self._time_s[row]), float(self._token_s[row])
        self._time_s[row] = self._token_s[row] = 0.0
        return taken
