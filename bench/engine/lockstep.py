"""The running set, most of which decodes in lockstep and is counted together.

From step to step nothing about a decoding sequence changes but how far it is, until its room is
full or it has said all. So those that only decode are not looked at one by one: what they are in
all is kept as they come and go, and a member's own counts are those that it joined with and the
steps taken since. A step costs what happens in it, not what runs.
"""

from __future__ import annotations

import math
from bisect import insort
from itertools import chain
from operator import attrgetter

from bench.engine.sequence import Sequence
from bench.metrics.accounting import MemoryAccount

place = attrgetter("place")
"""In the order of admission."""


class Lockstep:
    """Running sequences in order of admission: members, and those `apart`, each looked at by
    itself.

    A member computes one token in each step and gives one, until it has given its last. It is
    looked at when its room is full, and is apart once something else is done to it.
    """

    def __init__(self, account: MemoryAccount) -> None:
        self.apart: list[Sequence] = []
        self.followed: list[Sequence] = []
        """Members of which somebody hears of each token, in order of admission."""
        self.size = 0
        """Members."""
        self.context_tokens = 0
        """Tokens of members that have K and V."""
        self.steps = 0
        self.last_step = -1
        self.end_s = 0.0
        self.planned_before = -math.inf
        self._account = account
        self._admitted = 0
        self._full: list[Sequence] = []
        """Members without room for their next token."""
        self._due: dict[int, list[Sequence]] = {}
        """Members by the number of steps after which they are full or done."""

    def admit(self, sequence: Sequence) -> None:
        """A sequence runs from now on, apart at first."""
        sequence.place = self._admitted
        self._admitted += 1
        self.apart.append(sequence)

    def drop(self, sequence: Sequence) -> None:
        """A sequence does not run any more."""
        if sequence.lockstep is not None:
            self._leave(sequence)
        else:
            self.apart.remove(sequence)

    def join(self, sequence: Sequence) -> None:
        """A sequence that is apart only decodes from now on."""
        self.apart.remove(sequence)
        sequence.join(self)
        tokens = sequence.computed
        self.size += 1
        self.context_tokens += tokens
        self._account.filled(sequence.id, tokens, per_step=1)
        if sequence.followed:
            insort(self.followed, sequence, key=place)
        if tokens < sequence.slots:
            self.go_on(sequence)
        else:
            self._full.append(sequence)

    def go_on(self, sequence: Sequence) -> None:
        """A member has room for its next token."""
        steps = min(sequence.slots - sequence.computed, sequence.tokens_left)
        sequence.due = self.steps + steps
        self._due.setdefault(sequence.due, []).append(sequence)

    def part(self, sequence: Sequence) -> None:
        """A member is apart from now on."""
        self._leave(sequence)
        insort(self.apart, sequence, key=place)

    def _leave(self, sequence: Sequence) -> None:
        sequence.leave()
        if sequence.followed:
            self.followed.remove(sequence)
        self.size -= 1
        self.context_tokens -= sequence.computed
        self._account.filled(sequence.id, sequence.computed)

    def to_look_at(self) -> list[Sequence]:
        """Those that are apart and those that are full, in order of admission."""
        full = [sequence for sequence in self._full if sequence.lockstep is not None]
        self._full = []
        return sorted([*self.apart, *full], key=place) if full else self.apart.copy()

    def let_budget_decide(self) -> None:
        """Parts with members that may get none of the token budget, which has a token for every
        decoding sequence: those admitted after one that computes more at a time."""
        at_once = (s for s in self.apart if s.lineage or s.known - s.computed > 1)
        first = next((sequence.place for sequence in at_once if not sequence.paused), None)
        if first is None:
            return
        for sequence in chain(self._full, *self._due.values()):
            if sequence.lockstep is not None and sequence.place > first:
                self.part(sequence)

    def step_ended(self, number: int, end_s: float) -> list[Sequence]:
        """Every member computed a token and gave one; returns those for which it was the last."""
        self.planned_before = -math.inf
        self.last_step, self.end_s = number, end_s
        self.steps += 1
        self.context_tokens += self.size
        self._account.stepped()
        done: list[Sequence] = []
        for sequence in self._due.pop(self.steps, ()):
            if sequence.lockstep is not None and sequence.due == self.steps:
                sequence.due = -1  # it may have been away and have come back to the same step
                (self._full if sequence.tokens_left else done).append(sequence)
        return done
