"""Continuous batching: which sequences compute how many tokens in a step (Orca, section 3; vLLM).

Running sequences come first, in order of admission. One that cannot be given its next slot
preempts the youngest, whose K and V are dropped and computed again later. Then waiting requests
are admitted in order of arrival, as long as the token budget, the limits and memory allow. One that
is paused is passed over. A sequence's branches run, wait and lose their memory together.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from bench.engine.incidents import IncidentLog
from bench.engine.kv_memory import KvMemory
from bench.engine.lineage import Lineage
from bench.engine.lockstep import Lockstep
from bench.engine.sequence import Sequence
from bench.metrics.status import Status

End = Callable[[Sequence, Status, str | None], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a step and the running set may hold; each branch of a sequence counts as one.

    With chunked prefill `token_budget` bounds all tokens of a step; with whole-prompt prefill it
    bounds the prompts admitted in one step, and decodes come on top. With `admit_whole_prompt` a
    request waits until all of its known tokens would fit, even where they come in chunks. Where
    each sequence is a forward pass of its own, `longest_pass` tokens are the most that one has.
    Without `branches` a request has one.
    """

    prefill: Literal["whole", "chunked"]
    token_budget: int
    max_num_seqs: int
    max_live_tokens: int | None
    admit_whole_prompt: bool
    on_oom: Literal["queue", "fail"]
    batching: Literal["continuous", "static"] = "continuous"
    longest_pass: int | None = None
    branches: bool = True

    @property
    def largest_step(self) -> tuple[int, int]:
        """Most tokens and most sampled rows that a step can have. Whole prompts and the padding of
        static batches come on top of the budget."""
        if self.longest_pass is not None:
            return self.longest_pass, 1
        on_top = self.prefill == "whole" or self.batching == "static"
        decodes = self.max_num_seqs if on_top else 0
        return self.token_budget + decodes, self.max_num_seqs


@dataclass(slots=True)
class Plan:
    """A step's sequences, each with its `chunk` set, those that decode beside them in lockstep, and
    those that have ended and are computed all the same (static batches)."""

    sequences: list[Sequence] = field(default_factory=list)
    padding: list[Sequence] = field(default_factory=list)
    lockstep: Lockstep | None = None

    @property
    def size(self) -> int:
        """Sequences that go on in the step."""
        return len(self.sequences) + (self.lockstep.size if self.lockstep else 0)


class Scheduler:
    """The waiting and running queues. `end` is told of requests that fail on the way."""

    def __init__(self, memory: KvMemory, limits: Limits, incidents: IncidentLog, end: End) -> None:
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.lockstep = Lockstep(memory.account)
        self.memory_bound = False
        self.preemptions = 0
        self._branches = 0  # of running sequences, forked or not
        self._memory = memory
        self._limits = limits
        self._incidents = incidents
        self._end = end
        # Whose admission was refused, and `frees` then: no use in trying again before that moves.
        self._refused: set[int] = set()
        self._refused_at = 0

    @property
    def holders(self) -> list[Sequence]:
        """Sequences that hold memory, in order of admission."""
        return self.running

    @property
    def next_in_line(self) -> Sequence | None:
        """The first request in the queue; one whose client is behind lets others pass."""
        for sequence in self.waiting:
            if not sequence.paused:
                return sequence
        return None

    def add(self, sequence: Sequence) -> None:
        """A request joins the end of the queue."""
        self.waiting.append(sequence)

    def schedule(self, now: float) -> Plan:
        """Chooses the next step's work and takes the memory for it."""
        self.memory_bound = False
        plan = Plan(lockstep=self.lockstep)
        preemptions = self.preemptions
        budget = self._continue_running(plan, now)
        if self.preemptions == preemptions:
            self._admit(plan, budget, now)
        return plan

    def _continue_running(self, plan: Plan, now: float) -> int:
        """Adds running sequences; returns the tokens left for admission."""
        chunked, lockstep = self._limits.prefill == "chunked", self.lockstep
        budget = self._limits.token_budget if chunked else 1 << 62
        if chunked:
            lockstep.let_budget_decide()
        for sequence in lockstep.to_look_at():
            if sequence.paused or not sequence.slots:  # or preempted by one before it
                continue
            lockstep.planned_before = sequence.place
            if sequence.lockstep is not None:
                if self._extend(sequence, sequence.computed + 1, now):
                    lockstep.go_on(sequence)
                continue
            left = budget - lockstep.size
            if sequence.lineage is None:
                chunk = min(sequence.uncomputed, left)
                grows = sequence.computed + chunk > sequence.slots
            else:
                chunk = self._branched_chunk(sequence, sequence.lineage, left)
                grows = True
            if not chunk:
                break
            if grows and not self._extend(sequence, sequence.computed + chunk, now):
                continue
            sequence.chunk = chunk
            budget -= chunk * sequence.branches
            plan.sequences.append(sequence)
        lockstep.planned_before = math.inf
        return budget - lockstep.size if chunked else self._limits.token_budget

    def _branched_chunk(self, sequence: Sequence, lineage: Lineage, budget: int) -> int:
        """What each branch computes: up to the fork, and beyond it all of them the same."""
        if sequence.computed < lineage.trunk:
            return min(sequence.uncomputed, budget)
        if sequence.branches == 1:
            lineage.fork()
        return min(sequence.uncomputed, min(budget, self._limits.token_budget) // lineage.width)

    def _extend(self, sequence: Sequence, tokens: int, now: float) -> bool:
        """Makes room, at the cost of younger sequences; False when `sequence` itself had to go.

        One that is alone goes too: computed again, it needs no room for its old buffer.
        """
        while not self._memory.extend(sequence, tokens):
            self.memory_bound = True
            if self._limits.on_oom == "fail":
                self._incidents.extend_refused(sequence, tokens, now, preempted=None)
                self.fail(sequence, "out of KV memory while decoding")
                return False
            victim = self.running[-1]
            self._incidents.extend_refused(sequence, tokens, now, preempted=victim.id)
            self.preempt(victim)
            if victim is sequence:
                return False
        return True

    def _admit(self, plan: Plan, budget: int, now: float) -> bool:
        """Whether the tokens left were too few for the next in line."""
        whole = self._limits.prefill == "whole"
        while (sequence := self.next_in_line) is not None and budget > 0:
            if self._branches + sequence.width > self._limits.max_num_seqs:
                return False
            if self._waits_for_memory(sequence):
                self.memory_bound = True
                return False
            cached = self._memory.lookup(sequence)
            chunk = sequence.uncomputed - cached
            if not whole:
                chunk = min(chunk, budget)
            if chunk > budget:
                return True
            if self._too_many_live_tokens(sequence):
                return False
            if not self._reserve(sequence, cached + chunk, now):
                if self.next_in_line is sequence:
                    return False
                continue  # it failed; the next one may fit
            self.waiting.remove(sequence)
            self.running.append(sequence)
            self.lockstep.admit(sequence)
            self._branches += sequence.width
            if sequence.admitted_s is None:
                sequence.admitted_s = now
            sequence.chunk = chunk
            budget -= chunk
            if chunk:  # else all of its trunk was found
                plan.sequences.append(sequence)
        return self.next_in_line is not None and budget == 0

    def _too_many_live_tokens(self, sequence: Sequence) -> bool:
        limit = self._limits.max_live_tokens
        if limit is None:
            return False
        holders = self.holders
        live = sum(other.known * other.width for other in holders)
        return bool(holders) and live + sequence.known * sequence.width > limit

    def _waits_for_memory(self, sequence: Sequence) -> bool:
        """Whether the sequence was refused and nothing was freed since."""
        return self._refused_at == self._memory.frees and sequence.id in self._refused

    def _reserve(self, sequence: Sequence, tokens: int, now: float) -> bool:
        """Takes memory for the next in line."""
        # One that lost its memory once would lose it again at the same place.
        whole = self._limits.admit_whole_prompt or sequence.preemptions > 0
        room = sequence.known if whole else tokens
        if self._memory.reserve(sequence, tokens, room):
            self._incidents.wait_ended(sequence, now)
            return True
        self.memory_bound = True
        self._incidents.reserve_refused(sequence, room, now)
        if self._limits.on_oom == "fail" or not self.running:
            self.waiting.remove(sequence)
            self._incidents.wait_ended(sequence, now)
            self._end(sequence, Status.FAILED, "out of KV memory at admission")
        else:
            if self._refused_at != self._memory.frees:
                self._refused_at = self._memory.frees
                self._refused.clear()
            self._refused.add(sequence.id)
        return False

    def preempt(self, sequence: Sequence) -> None:
        """Drops the sequence's K and V and puts it first in line, to be computed again."""
        self._leave(sequence)
        sequence.restart()
        self.preemptions += 1
        self.waiting.appendleft(sequence)

    def fail(self, sequence: Sequence, cause: str) -> None:
        """Ends a running sequence for want of memory."""
        self._leave(sequence)
        self._end(sequence, Status.FAILED, cause)

    def finish(self, finished: list[Sequence], end_s: float) -> list[Sequence]:
        """Sequences gave their last token: those whose requests end now, their memory freed."""
        for sequence in finished:
            self._leave(sequence)
        return finished

    def cancel(self, sequence: Sequence) -> None:
        """Takes a sequence out, wherever it is, and frees what it holds."""
        if sequence.slots:
            self._leave(sequence)
        else:
            self.waiting.remove(sequence)

    def _leave(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.lockstep.drop(sequence)
        self._give_back(sequence)

    def _give_back(self, sequence: Sequence) -> None:
        self._branches -= sequence.width
        self._memory.free(sequence)
