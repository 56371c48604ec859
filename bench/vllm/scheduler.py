"""vLLM in the place of our scheduler: it plans and computes each step, and what it grants, refuses
and preempts is done again in the engine's books at that very moment."""

from __future__ import annotations

import torch

from bench.engine.engine import ActivationsDoNotFitError
from bench.engine.incidents import IncidentLog, Refused
from bench.engine.kv_memory import KvMemory
from bench.engine.scheduler import End, Limits, Plan, Scheduler
from bench.engine.sequence import Sequence
from bench.vllm.session import VllmSession
from bench.words import first_sentences


class VllmScheduler(Scheduler):
    """The waiting and running queues as vLLM's are."""

    def __init__(
        self,
        memory: KvMemory,
        limits: Limits,
        incidents: IncidentLog,
        end: End,
        *,
        session: VllmSession,
    ) -> None:
        super().__init__(memory, limits, incidents, end)
        self._session = session
        self._pool = session.pool
        session.scheduler.watcher = self
        self._sequences: dict[int, Sequence] = {}
        self._plan = Plan()
        self._now = 0.0
        self._preempted: set[int] = set()

    def add(self, sequence: Sequence) -> None:
        super().add(sequence)
        self._sequences[sequence.id] = sequence
        self._session.add(sequence)

    def schedule(self, now: float) -> Plan:
        """A step of vLLM, to its end. Raises ActivationsDoNotFitError when it runs out of memory,
        of which it dies."""
        self.memory_bound = False
        self._now, self._plan, self._preempted = now, Plan(), set()
        try:
            self._session.step()
        except torch.OutOfMemoryError as error:
            why = str(error)
        else:
            self._check_tokens()
            return self._plan
        self._incidents.activation_refused(now, Refused(why), preempted=None)
        raise ActivationsDoNotFitError(f"vLLM ran out of memory in a step: {first_sentences(why)}")

    def cancel(self, sequence: Sequence) -> None:
        self._session.abort(sequence)
        super().cancel(sequence)
        del self._sequences[sequence.id]

    def finish(self, finished: list[Sequence], end_s: float) -> list[Sequence]:
        for sequence in finished:
            if sequence.tokens_left:  # our client wants no more of it
                self._session.abort(sequence)
            del self._sequences[sequence.id]
        return super().finish(finished, end_s)

    # --- what vLLM decides, as it does ----------------------------------------------------------

    def extended(self, request: int, tokens: int) -> None:
        """A running request got room for its next tokens."""
        sequence = self._sequences[request]
        self._memory.extend(sequence, tokens)
        self._plan_chunk(sequence, tokens)

    def admitted(self, request: int, tokens: int) -> None:
        """A waiting request got room for its first tokens."""
        sequence = self._sequences[request]
        self._memory.reserve(sequence, tokens, tokens)
        self._incidents.wait_ended(sequence, self._now)
        self.waiting.remove(sequence)
        self.running.append(sequence)
        self.lockstep.admit(sequence)
        self._branches += sequence.width
        if sequence.admitted_s is None:
            sequence.admitted_s = self._now
        self._plan_chunk(sequence, tokens)

    def _plan_chunk(self, sequence: Sequence, tokens: int) -> None:
        sequence.chunk = tokens - sequence.computed
        self._plan.sequences.append(sequence)

    def not_extended(self, request: int, tokens: int, preempted: int) -> None:
        """A running request was refused room, and another, or it itself, has to go."""
        self.memory_bound = True
        self._pool.refuse(request, tokens)
        self._incidents.extend_refused(self._sequences[request], tokens, self._now, preempted)
        self._preempted.add(preempted)
        self.preempt(self._sequences[preempted])

    def not_admitted(self, request: int, tokens: int, shared: int) -> None:
        """A waiting request was refused room."""
        self.memory_bound = True
        sequence = self._sequences[request]
        wanted = sequence.known if self._limits.admit_whole_prompt else tokens
        self._pool.refuse(request, wanted, shared)
        self._incidents.reserve_refused(sequence, wanted, self._now)

    def scheduled(self, tokens: dict[int, int], preempted: set[int]) -> None:
        """What was followed is what vLLM did. Memory is read now: before the step ends and those
        that end with it give theirs back."""
        followed = {sequence.id: sequence.chunk for sequence in self._plan.sequences}
        if (followed, self._preempted) != (tokens, preempted):
            raise RuntimeError(
                f"vLLM computes {tokens} and preempts {preempted}, and {followed} and "
                f"{self._preempted} was followed"
            )
        self._memory.usage()

    def _check_tokens(self) -> None:
        """Every sequence that has computed all that is known of it got a token, and no other."""
        asking = {s.id for s in self._plan.sequences if s.computed + s.chunk == s.known}
        if asking != self._session.said.keys():
            raise RuntimeError(
                f"vLLM gave tokens to {sorted(self._session.said)}, and {sorted(asking)} had "
                "computed their prompts"
            )
