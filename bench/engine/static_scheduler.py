"""Static batching: a batch runs until its last request is done (NVIDIA FasterTransformer).

Requests are admitted, in order of arrival, only when nothing runs, as many as memory and the
limits allow; their prompts are computed first. One that is done keeps its memory and its place in
every step, and its answer comes, all at once, when the batch ends.
"""

from __future__ import annotations

from bench.engine.scheduler import Plan, Scheduler
from bench.engine.sequence import Sequence
from bench.metrics.status import Status


class StaticScheduler(Scheduler):
    """Request-level scheduling, as before Orca (PagedAttention, section 6.1)."""

    _done: tuple[Sequence, ...] = ()
    _forming = True

    @property
    def holders(self) -> list[Sequence]:
        return [*self.running, *self._done]

    def schedule(self, now: float) -> Plan:
        self.memory_bound = False
        plan = Plan()
        if not self.running:
            self._end_batch(now)  # whoever it waited for is gone
            self._forming = True
        if self._forming:
            self._forming = self._admit(plan, self._limits.token_budget, now)
        elif (waiting := self.next_in_line) is not None:
            # it was refused when the batch was formed, and may still be
            self.memory_bound = self._waits_for_memory(waiting)
        if not plan.sequences:
            self._continue_running(plan, now)
            plan.padding = list(self._done)
        return plan

    def finish(self, finished: list[Sequence], end_s: float) -> list[Sequence]:
        for sequence in finished:
            if sequence not in self._done:
                self._done += (sequence,)
                self.running.remove(sequence)
                self.lockstep.drop(sequence)
        return [] if self.running else self._free_batch(end_s)

    def _end_batch(self, end_s: float) -> None:
        for sequence in self._free_batch(end_s):
            self._end(sequence, Status.COMPLETED, None)

    def _free_batch(self, end_s: float) -> list[Sequence]:
        batch, self._done = self._done, ()
        for sequence in batch:
            self._give_back(sequence)
            sequence.arrived_at_once(end_s)
        return list(batch)

    def _leave(self, sequence: Sequence) -> None:
        if sequence not in self._done:
            super()._leave(sequence)
            return
        self._done = tuple(other for other in self._done if other is not sequence)
        self._give_back(sequence)
