"""The engine: requests in, steps of modelled or measured time, requests out.

Synchronous: `step(now)` does one step of continuous batching; whoever drives it owns the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from backends.base import Backend, TokenIds
from bench.costs import StepWork
from bench.engine.cache_emptying import CacheEmptying
from bench.engine.executor import Computed, Executor
from bench.engine.incidents import IncidentLog, Refused
from bench.engine.kv_memory import KvMemory
from bench.engine.lockstep import place
from bench.engine.scheduler import End, Limits, Plan, Scheduler
from bench.engine.sequence import Sequence
from bench.engine.static_scheduler import StaticScheduler
from bench.metrics.accounting import MemoryAccount
from bench.metrics.inter_token import InterTokenGaps
from bench.metrics.status import Status
from bench.sources.active import Sources
from bench.words import first_sentences
from workloads.base import Request

OnEnd = Callable[[Sequence, Status, str | None, float], None]
OnToken = Callable[[Sequence, list[int] | None], None]
MakeScheduler = Callable[[KvMemory, Limits, IncidentLog, End], Scheduler]


class ActivationsDoNotFitError(RuntimeError):
    """A step's activations were refused twice: a real engine dies here."""


@dataclass(slots=True)
class Step:
    """What a step did, seen before its finished sequences give back their memory."""

    start_s: float
    end_s: float
    tokens: int
    sequences: int
    memory_bound: bool
    preempted: int


@dataclass(slots=True)
class LateSteps:
    """Steps of a wall clock that were still being computed when the modelled GPU would have ended
    them, and by how many seconds of the engine's time in all."""

    count: int = 0
    late_s: float = 0.0


class Engine:
    """Schedules, executes and accounts. All of `on_ends` hear of every request that ended, once;
    `on_token` of the ids that one got in a step (None where nothing is computed), a branch each, at
    least of those that are followed."""

    def __init__(
        self,
        backend: Backend,
        executor: Executor,
        limits: Limits,
        account: MemoryAccount,
        incidents: IncidentLog,
        max_model_len: int,
        on_end: OnEnd,
        token_source: Callable[[Request], TokenIds] | None = None,
        sources: Sources | None = None,
        empty_cache: str = "never",
        make_scheduler: MakeScheduler | None = None,
    ) -> None:
        self.memory = KvMemory(backend, account)
        self.sources = sources or Sources({})
        self.sources.incidents = incidents
        self.memory.on_free = self.sources.left
        self.account = account
        self.gaps = InterTokenGaps()
        self.executor = executor
        self._emptying = CacheEmptying(empty_cache, executor)
        self.incidents = incidents
        self.sent = 0
        self.steps = 0
        self.output_tokens = 0
        self.on_step: Callable[[Step], None] | None = None
        self.on_token: OnToken | None = None
        self.max_model_len = max_model_len
        self.on_ends = [on_end]
        self._token_source = token_source
        self._now = 0.0
        self.max_num_seqs = limits.max_num_seqs
        self.token_budget = limits.token_budget
        self._takes_branches = limits.branches
        self.answers_at_once = limits.batching == "static"
        self.late_steps = LateSteps()
        self._in_lockstep = not (
            limits.batching == "static" or executor.looks_at_each or self.sources.are_on
        )
        own = StaticScheduler if limits.batching == "static" else Scheduler
        self._scheduler = (make_scheduler or own)(self.memory, limits, incidents, self._ended)
        incidents.watch(self)

    @property
    def running(self) -> list[Sequence]:
        """Sequences that hold memory, in order of admission."""
        return self._scheduler.holders

    @property
    def preemptions(self) -> int:
        """How often a sequence lost its memory and went back to the queue."""
        return self._scheduler.preemptions

    @property
    def waiting_count(self) -> int:
        """Requests in the queue."""
        return len(self._scheduler.waiting)

    @property
    def oldest_step(self) -> int:
        """The first step that gave a token to a sequence that is still open; the next one if there
        is none."""
        opened = (*self.running, *self._scheduler.waiting)
        return min((s.oldest_step for s in opened if s.oldest_step >= 0), default=self.steps)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.running and not self._scheduler.waiting

    @property
    def token_states(self) -> int:
        """Slots that hold a live token, shared ones counted once."""
        shared_bytes = self.memory.usage().shared
        return self.account.live_tokens - shared_bytes // self.account.token_bytes

    def add(self, request: Request, sent_s: float, token_ids: TokenIds | None = None) -> Sequence:
        """Queues a request, or rejects it at once if it can never fit. Its tokens are `token_ids`
        or those of the engine's source."""
        self.sent += 1
        if token_ids is None and self._token_source is not None:
            token_ids = self._token_source(request)
        sequence = Sequence(request, sent_s, token_ids)
        self._now = sent_s
        total = request.prompt_tokens + request.output_tokens
        if total > self.max_model_len:
            cause = f"{total} tokens exceed max_model_len={self.max_model_len}"
            self._ended(sequence, Status.REJECTED, cause)
        elif request.branches > self.max_num_seqs:
            cause = f"{request.branches} branches exceed max_num_seqs={self.max_num_seqs}"
            self._ended(sequence, Status.REJECTED, cause)
        elif request.branches > 1 and not self._takes_branches:
            cause = f"{request.branches} branches, and this engine gives a request one"
            self._ended(sequence, Status.REJECTED, cause)
        elif not self.memory.backend.fits(sequence.demand):
            self._ended(sequence, Status.REJECTED, f"{total} tokens exceed the KV budget")
        else:
            self._scheduler.add(sequence)
        return sequence

    def cancel(self, sequence: Sequence, now: float, cause: str | None = None) -> None:
        """The client left: the sequence gives back its memory at once."""
        self._take_out(sequence, now)
        self._ended(sequence, Status.CANCELLED, cause)

    def complete(self, sequence: Sequence, now: float) -> None:
        """The sequence has said enough: it is done before its last token, but after its first. One
        of a static batch ends with the batch."""
        if not sequence.slots:
            self._take_out(sequence, now)
            self._ended(sequence, Status.COMPLETED, None)
            return
        self._now = now
        for done in self._scheduler.finish([sequence], now):
            self._ended(done, Status.COMPLETED, None)

    def _take_out(self, sequence: Sequence, now: float) -> None:
        self._now = now
        self._scheduler.cancel(sequence)
        self.incidents.wait_ended(sequence, now)

    def step(self, now: float) -> Step | None:
        """One step from `now` on; None when nothing could be scheduled.

        Raises ActivationsDoNotFitError.
        """
        self._now = now
        self._step_began = time.perf_counter()
        preemptions = self.preemptions
        plan = self._scheduler.schedule(now)
        if not plan.size:
            return None
        work = step_work(plan)
        copy_s = self.executor.copy_s(*self.memory.take_copies())
        self.sources.step_begins(now, plan.sequences, work)
        refused = None
        try:
            computed = self._execute(work, plan)
        except torch.OutOfMemoryError as error:
            refused = Refused.by(error)  # and no more: its traceback holds the step's activations
        if refused is not None:
            self._drop_youngest(plan, now, refused)
            computed, work = self._retry(plan, now)
        self.sources.step_ended(plan.sequences, work)
        duration = self._duration_s(computed) + copy_s
        step = Step(
            start_s=now,
            end_s=now + duration,
            tokens=work.tokens,
            sequences=plan.size,
            memory_bound=self._scheduler.memory_bound,
            preempted=self.preemptions - preemptions,
        )
        self._commit(plan, step, computed.token_ids)
        emptied_s = self._emptying.after_step(self.idle)
        if emptied_s:
            self.hold(step.end_s, step.end_s + emptied_s)
            step.end_s += emptied_s
        return step

    def _execute(self, work: StepWork, plan: Plan) -> Computed:
        moves = self.memory.backend.moves + self.sources.moves + self._emptying.count
        return self.executor.run(work, plan, moves)

    def _duration_s(self, computed: Computed) -> float:
        """Modelled seconds, or those that passed since the step began, scheduling included."""
        if computed.seconds is not None:
            return computed.seconds
        return time.perf_counter() - self._step_began

    def _drop_youngest(self, plan: Plan, now: float, refused: Refused) -> None:
        youngest = self._scheduler.running[-1]
        if len(self._scheduler.running) == 1:
            self.incidents.activation_refused(now, refused, None)
            raise ActivationsDoNotFitError(
                f"the activations of one sequence did not fit: {first_sentences(refused.error)}"
            )
        self.incidents.activation_refused(now, refused, youngest.id)
        if youngest in plan.sequences:
            plan.sequences.remove(youngest)
        self._scheduler.preempt(youngest)

    def _retry(self, plan: Plan, now: float) -> tuple[Computed, StepWork]:
        work = step_work(plan)
        try:
            return self._execute(work, plan), work
        except torch.OutOfMemoryError as error:
            self.incidents.activation_refused_twice(now)
            raise ActivationsDoNotFitError(
                f"the activations of a step of {work.tokens} tokens did not fit, even after the "
                f"youngest sequence was preempted: {first_sentences(str(error))}"
            ) from error

    def _commit(self, plan: Plan, step: Step, token_ids: list[list[int]] | None) -> None:
        """Tokens are written and emitted; finished sequences end after memory was observed."""
        said = iter(token_ids or ())
        end_s, number = step.end_s, self.steps
        self.steps += 1
        self.memory.backend.computed()
        self.gaps.step_ended(end_s)
        lockstep = self._scheduler.lockstep
        self.output_tokens += lockstep.size
        finished, followed = lockstep.step_ended(number, end_s), lockstep.followed.copy()
        for sequence in plan.sequences:
            if sequence.compute_chunk():
                ids = next(said) if token_ids is not None else None
                self._give_token(sequence, number, end_s, ids)
                if sequence.followed:
                    followed.append(sequence)
                if not sequence.tokens_left:
                    finished.append(sequence)
                elif self._in_lockstep and not (sequence.paused or sequence.lineage):
                    lockstep.join(sequence)
                    continue
            self.account.filled(sequence.id, sequence.tokens)
        if self._in_lockstep and self.on_token is not None:
            for sequence in sorted(followed, key=place):
                self.on_token(sequence, None)
        finished.sort(key=place)
        self._observe(step)
        self._now = end_s
        for sequence in self._scheduler.finish(finished, end_s):
            self._ended(sequence, Status.COMPLETED, None)

    def _give_token(
        self, sequence: Sequence, number: int, end_s: float, ids: list[int] | None
    ) -> None:
        if sequence.text is not None and ids is not None:
            sequence.text.append(ids)
        if sequence.lineage is not None and sequence.generated:
            parents = sequence.lineage.grow(sequence.known)
            if parents is not None and sequence.text is not None:
                sequence.text.follow(parents)
        self.output_tokens += sequence.width
        if sequence.last_step != number - 1:
            self.gaps.run_broken(sequence, number, end_s)
        sequence.give_token(number, end_s)
        if self.on_token is not None and not self._in_lockstep:
            self.on_token(sequence, ids)

    def _observe(self, step: Step) -> None:
        self.account.observe(step.end_s - step.start_s, self.memory.usage(), step.memory_bound)
        if self.on_step is not None:
            self.on_step(step)

    def _ended(self, sequence: Sequence, status: Status, cause: str | None) -> None:
        sequence.status = status
        if status is Status.COMPLETED and sequence.request.client.tokens_per_s is None:
            self.gaps.completed(sequence)
        for on_end in self.on_ends:
            on_end(sequence, status, cause, self._now)

    def hold(self, now: float, until_s: float) -> None:
        """Time passes in which nothing can be computed: sequences whose clients are behind keep
        their memory."""
        if self.running:
            bound = self._scheduler.memory_bound
            self.account.observe(until_s - now, self.memory.usage(), bound)

    def send_away(self, now: float) -> None:
        """What waits stays unfinished; what runs goes on."""
        for sequence in list(self._scheduler.waiting):
            self._take_out(sequence, now)
            self._ended(sequence, Status.UNFINISHED, None)

    def stop(self, now: float) -> None:
        """The run is over: what is open stays unfinished, and its unfilled memory undetermined."""
        self._now = now
        self.sources.stop()
        self.account.finish()
        self.incidents.finish()
        for sequence in (*self.running, *self._scheduler.waiting):
            self._ended(sequence, Status.UNFINISHED, None)


def step_work(plan: Plan) -> StepWork:
    """What the plan computes, for the executor: tokens, sampled rows and attention's reach."""
    tokens = sampled = decodes = decode_context = pairs = prefill_context = 0
    if plan.lockstep is not None:
        tokens = sampled = decodes = plan.lockstep.size
        decode_context = plan.lockstep.context_tokens + decodes
    for sequence in plan.sequences:
        chunk, computed, branches = sequence.chunk, sequence.computed, sequence.branches
        tokens += chunk * branches
        reach = computed + chunk
        if reach == sequence.known:
            sampled += branches
        if chunk == 1:
            decodes += branches
            decode_context += reach * branches
        else:
            pairs += (chunk * computed + chunk * (chunk + 1) // 2) * branches
            prefill_context += reach * branches
    for sequence in plan.padding:  # its last token, again and again
        tokens += sequence.branches
        sampled += sequence.branches
        decodes += sequence.branches
        decode_context += sequence.tokens
    return StepWork(
        tokens=tokens,
        sampled=sampled,
        decode_sequences=decodes,
        decode_context_tokens=decode_context,
        prefill_attention_tokens=pairs,
        prefill_context_tokens=prefill_context,
    )
