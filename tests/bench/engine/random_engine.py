"""A random life of an engine on any backend, with everything that must hold checked after every
step: run by tests on host memory and, in a process of its own, on the virtual GPU."""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import cycle, pairwise, repeat
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from backends.base import Backend
from bench.device.stats import DriverCalls, HeldBack, hold_back
from bench.engine.activations import Activations, ActivationTrace, record
from bench.engine.engine import ActivationsDoNotFitError, Step
from bench.metrics.accounting import Split
from bench.metrics.status import Status
from bench.metrics.summary import memory_bound
from tests.backends.conformance import MAX_MODEL_LEN, TOKEN_BYTES, started
from tests.bench.engine.lab import SHAPE, Call, Lab, limits
from workloads.base import Request, Survivors

BUDGETS = (12 << 20, (24 << 20) + 12_345)  # 768 and 1,536 tokens
PAGE_BYTES = 2 << 20
POOLED = ("buddy", "paged")


class Planned(NamedTuple):
    """A request to send, the step after which its client leaves, and those between which it is
    behind."""

    arrival_ms: int
    prompt_tokens: int
    output_tokens: int
    leaves_after_steps: int | None
    branches: int
    survivors: Survivors | None
    behind: tuple[int, int]


# Many requests, so that memory runs out; some that can never fit, some whose client leaves.
plans = st.lists(
    st.builds(
        Planned,
        st.integers(0, 5),
        st.sampled_from([1, 15, 16, 17, 40, 90, 150, 300, 480, 600]),
        st.sampled_from([1, 2, 20, 60, 130, 250]),
        st.sampled_from([None] * 8 + [0, 1, 5, 40]),
        st.sampled_from([1, 1, 1, 1, 2, 3]),
        st.sampled_from([None, lambda: repeat((0, 0, 0)), lambda: cycle([(0, 0, 2), (1, 1, 1)])]),
        st.sampled_from([(0, 0)] * 3 + [(1, 60), (3, 200)]),
    ),
    min_size=6,
    max_size=20,
)
chunked = st.fixed_dictionaries(
    {"prefill": st.just("chunked"), "token_budget": st.sampled_from([5, 33, 700])}
)
whole = st.fixed_dictionaries(
    {"prefill": st.just("whole"), "token_budget": st.sampled_from([MAX_MODEL_LEN, 2000])}
)
others = st.fixed_dictionaries(
    {
        "max_num_seqs": st.sampled_from([2, 64, 64]),
        "max_live_tokens": st.sampled_from([None, None, None, 300]),
        "admit_whole_prompt": st.booleans(),
        "on_oom": st.sampled_from(["queue", "queue", "queue", "fail"]),
        "batching": st.sampled_from(["continuous", "continuous", "static"]),
    }
)
stops = st.sampled_from([None, None, None, 10, 100])


def _survivors(all_beams: Survivors, width: int) -> Iterator[tuple[int, ...]]:
    """The same choices in a narrower beam."""
    return (tuple(parent % width for parent in parents[:width]) for parents in all_beams())


class Row(NamedTuple):
    """One sequence in one step: a hold is known by its sequence and the preemptions before it.
    `slots` are of `branches`, `tokens` of those that there are, each with `computed`."""

    step: int
    hold: tuple[int, int]
    slots: int
    tokens: int
    branches: int
    computed: int


class Watch:
    """Looks at an engine after every step, and keeps what is needed to split memory afterwards."""

    def __init__(self, lab: Lab, budget: int, watched: Any) -> None:
        self.lab = lab
        self.budget = budget
        self.limits = watched
        self.steps: list[Step] = []
        self.rows: list[Row] = []
        self.usages: list[Any] = []
        self.settled: list[Split] = []
        self.token_times: dict[int, list[float]] = {}
        self.branched: dict[int, int] = {}  # preemptions before those with several branches
        self.preempted_with_branches = 0
        self.cancelled_with_branches = 0
        self.paused: dict[int, int] = {}  # tokens of those whose clients are behind
        self.paused_and_waiting = 0
        lab.engine.on_step = self.on_step

    def on_step(self, step: Step) -> None:
        """Before finished sequences give back their memory."""
        number = len(self.steps)
        self.steps.append(step)
        engine = self.lab.engine
        for sequence in engine.running:
            assert self.paused.get(sequence.id, sequence.generated) == sequence.generated
            hold = sequence.id, sequence.preemptions
            if self.branched.pop(sequence.id, sequence.preemptions) < sequence.preemptions:
                self.preempted_with_branches += 1
            if sequence.branches > 1:
                self.branched[sequence.id] = sequence.preemptions
            forks_later = not self.lab.backend.holds_all_branches
            branches = sequence.branches if forks_later else sequence.request.branches
            self.rows.append(
                Row(number, hold, sequence.slots, sequence.tokens, branches, sequence.computed)
            )
            times = self.token_times.setdefault(sequence.id, [])
            times += [step.end_s] * (sequence.generated - len(times))
        self.usages.append(self.lab.backend.usage())
        self.check_memory()
        assert engine.account.sample() == number
        assert step.end_s > step.start_s >= (self.steps[-2].end_s if number else 0.0)
        if self.limits.prefill == "chunked":
            assert step.tokens <= self.limits.largest_step[0]
        assert step.sequences <= len(engine.running) <= self.limits.max_num_seqs

    def check_memory(self) -> None:
        """The six terms, each from its own source, are at least 0 and add up to the budget."""
        engine, backend = self.lab.engine, self.lab.backend
        backend.check_integrity()
        usage = backend.usage()
        shared = usage.shared // TOKEN_BYTES
        token_states = sum(sequence.tokens for sequence in engine.running) - shared
        slots = sum(sequence.slots for sequence in engine.running) - shared
        assert token_states == engine.token_states
        assert usage == engine.memory.usage(), "the engine looks at an old reading"
        assert usage.held == slots * TOKEN_BYTES
        terms = (token_states * TOKEN_BYTES, (slots - token_states) * TOKEN_BYTES, usage.rounding,
                 usage.cached, usage.free)  # fmt: skip
        assert min(terms) >= 0, terms
        assert sum(terms) == self.budget, terms
        for sequence in engine.running:
            assert sequence.tokens <= sequence.slots

    def check_step(self, step: Step | None, calls_before: int) -> None:
        """After the step: memory again, and that memory-bound means what it says."""
        self.check_memory()
        calls = self.lab.backend.calls
        refused_now = any(not call.granted for call in calls[calls_before:])
        if step is not None:
            if refused_now:
                assert step.memory_bound
            elif step.memory_bound:
                standing = _refused_since_a_free(calls[:calls_before])
                assert standing, "memory-bound, and nothing was refused for want of memory"
                in_line = [number for number in self.lab.waiting if number not in self.paused]
                assert standing & set(in_line[: 1 + step.preempted]), "not tried"
        splits = self.lab.engine.account.samples
        for number in range(len(self.settled), self.lab.engine.account.settled()):
            self.settled.append(replace(splits[number]))


def _refused_since_a_free(calls: list[Call]) -> set[int]:
    refused = set()
    for call in reversed(calls):
        if call.verb == "free":
            break
        if call.verb == "reserve" and not call.granted:
            refused.add(call.sequence)
    return refused


def _admissions_respect_live_tokens(
    lab: Lab, step: Step, known_before: dict[int, int], limit: int
) -> None:
    """Whoever was admitted in this step was alone, or the known tokens fitted the limit then."""
    admitted = [s for s in lab.engine.running if s.id not in known_before]
    ended = {end.sequence.id for end in lab.ends if end.end_s <= step.start_s}
    stayed = known_before.keys() - ended
    kept, others = sum(known_before[s] for s in stayed), len(stayed)
    for sequence in admitted:
        known = sequence.known - (sequence.computed == sequence.known - 1)
        kept += known * sequence.request.branches
        assert kept <= limit or not others, (kept, limit)
        others += 1


def life(lab: Lab, watch: Watch, planned: list[Planned], stop_after: int | None) -> list[Any]:
    """Sends, steps and cancels; returns the sequences sent. Ends when all did, or is stopped."""
    arrivals = sorted(planned, key=lambda plan: plan.arrival_ms)
    sequences: list[Any] = []
    engine, calls, steps = lab.engine, lab.backend.calls, 0
    while len(sequences) < len(arrivals) or not engine.idle:
        if engine.idle:
            lab.now = max(lab.now, arrivals[len(sequences)].arrival_ms / 1e3)
        while len(sequences) < len(arrivals) and (
            (due := arrivals[len(sequences)]).arrival_ms / 1e3 <= lab.now
        ):
            at = due.arrival_ms / 1e3
            request = Request(
                len(sequences), at, due.prompt_tokens, due.output_tokens, branches=due.branches,
                survivors=due.survivors and partial(_survivors, due.survivors, due.branches),
            )  # fmt: skip
            sequences.append(engine.add(request, at))
        ended = {end.sequence.id for end in lab.ends}
        _pause(sequences, arrivals, steps)
        watch.paused = {s.id: s.generated for s in sequences if s.paused}
        watch.paused_and_waiting += any(number in watch.paused for number in lab.waiting)
        for sequence, plan in zip(sequences, arrivals, strict=False):
            if plan.leaves_after_steps == steps and sequence.id not in ended:
                watch.cancelled_with_branches += sequence.branches > 1
                engine.cancel(sequence, lab.now)
                watch.check_memory()
        if stop_after is not None and steps >= stop_after:
            break
        before = len(calls)
        known = {s.id: s.known * s.request.branches for s in engine.running}
        try:
            step = lab.step()
        except ActivationsDoNotFitError:
            break
        watch.check_step(step, before)
        if watch.limits.max_live_tokens and step is not None and not step.preempted:
            _admissions_respect_live_tokens(lab, step, known, watch.limits.max_live_tokens)
        steps += 1
        assert steps < 20_000, "the engine does not come to an end"
    return sequences


def _pause(sequences: list[Any], arrivals: list[Planned], step: int) -> None:
    for sequence, plan in zip(sequences, arrivals, strict=False):
        begin, end = plan.behind
        sequence.paused = sequence.generated > 0 and begin <= step < end


def check_ends(lab: Lab, sequences: list[Any], *, static: bool) -> None:
    """Every request ended exactly once, and each in a way that fits what happened to it; in a
    static batch the answer comes all at once."""
    assert sorted(end.sequence.id for end in lab.ends) == [s.id for s in sequences]
    assert len({s.id for s in sequences}) == len(sequences)
    for end in lab.ends:
        sequence, request = end.sequence, end.sequence.request
        if end.status is Status.REJECTED:
            assert sequence.admitted_s is None
            assert end.end_s == sequence.sent_s
        if end.status is not Status.COMPLETED:
            assert (end.cause is None) == (end.status in (Status.CANCELLED, Status.UNFINISHED))
            assert sequence.generated < request.output_tokens + static
            continue
        assert sequence.generated == request.output_tokens
        assert sequence.computed == request.prompt_tokens + request.output_tokens - 1
        moments = (sequence.sent_s, sequence.admitted_s, sequence.first_token_s,
                   sequence.last_token_s, end.end_s)  # fmt: skip
        assert list(moments) == sorted(moments)
        assert sequence.first_token_s > sequence.admitted_s
        assert sequence.last_token_s == end.end_s
        at_once = static or request.output_tokens == 1
        assert (sequence.first_token_s == sequence.last_token_s) == at_once


def check_retries(lab: Lab) -> None:
    """A refused admission was tried again only after something had been freed."""
    refused: set[int] = set()
    for call in lab.backend.calls:
        if call.verb in ("free", "fork"):
            refused.clear()
        elif call.verb == "reserve":
            assert call.sequence not in refused, "tried again though nothing was freed"
            if not call.granted:
                refused.add(call.sequence)


def check_gaps(lab: Lab, watch: Watch) -> None:
    """Inter-token gaps are those between all tokens of completed requests, written down."""
    expected: Counter[float] = Counter()
    for number in lab.ended(Status.COMPLETED):
        times = watch.token_times[number]
        expected.update(later - earlier for earlier, later in pairwise(times))
    lengths, weights = lab.engine.gaps.weighted()
    measured: Counter[float] = Counter()
    for length, weight in zip(lengths.tolist(), weights.tolist(), strict=True):
        measured[length] += weight
    assert measured == expected


def check_account(lab: Lab, watch: Watch) -> None:
    """The account against its definition, slot by slot, with hindsight."""
    account = lab.engine.account
    final = {row.hold: row.computed for row in watch.rows}
    open_holds = {(s.id, s.preemptions) for s in lab.engine.running}
    whole, samples = Split(), [Split() for _ in watch.steps]
    token_s = held_s = 0.0
    for row in watch.rows:
        step = watch.steps[row.step]
        duration_s = step.end_s - step.start_s
        token_s += row.tokens * duration_s
        held_s += row.slots * duration_s
        for split, weight in ((samples[row.step], 1), (whole, duration_s * step.memory_bound)):
            if row.hold in open_holds:
                split.undetermined += len(range(row.tokens, row.slots)) * weight
                continue
            a_branch = row.slots // row.branches
            filled = row.branches * len(range(min(a_branch, final[row.hold])))
            split.reservation += (filled - row.tokens) * weight
            split.internal += (row.slots - filled) * weight
    for step, usage in zip(watch.steps, watch.usages, strict=True):  # shared slots count once
        shared_s = usage.shared // TOKEN_BYTES * (step.end_s - step.start_s)
        token_s -= shared_s
        held_s -= shared_s
    assert account.samples == samples
    assert watch.settled == samples[: len(watch.settled)], "a settled sample changed"
    assert account.token_byte_s == pytest.approx(token_s * TOKEN_BYTES)
    assert account.held_byte_s == pytest.approx(held_s * TOKEN_BYTES)
    for term in ("reservation", "internal", "undetermined"):
        expected = getattr(whole, term)
        assert getattr(account.bound.unfilled, term) == pytest.approx(expected, abs=1e-9)
    _check_shares(lab, watch, whole)


def _check_shares(lab: Lab, watch: Watch, unfilled: Split) -> None:
    """Shares of the budget while memory-bound, and that they make a whole."""
    bound = [n for n, step in enumerate(watch.steps) if step.memory_bound]
    seconds = {n: watch.steps[n].end_s - watch.steps[n].start_s for n in bound}
    shares = memory_bound(lab.engine.account, simulated_s=max(lab.now, 1e-9))
    if not bound:
        assert shares is None
        return
    assert shares is not None
    whole = watch.budget * sum(seconds.values())
    tokens = sum(row.tokens * seconds[row.step] for row in watch.rows if row.step in seconds)
    tokens -= sum(watch.usages[n].shared // TOKEN_BYTES * seconds[n] for n in bound)
    expected = {
        "token_states": tokens * TOKEN_BYTES / whole,
        "reservation": unfilled.reservation * TOKEN_BYTES / whole,
        "internal": unfilled.internal * TOKEN_BYTES / whole,
        "undetermined": unfilled.undetermined * TOKEN_BYTES / whole,
        "rounding": sum(watch.usages[n].rounding * seconds[n] for n in bound) / whole,
        "cached": sum(watch.usages[n].cached * seconds[n] for n in bound) / whole,
        "external": sum(watch.usages[n].free * seconds[n] for n in bound) / whole,
    }
    measured = {term: shares[term] for term in expected}
    assert measured == pytest.approx(expected, abs=1e-9)
    assert sum(measured.values()) == pytest.approx(1.0, abs=1e-9)
    assert min(measured.values()) >= -1e-12
    assert 0 < shares["share_of_time"] <= 1 + 1e-9


def check_random_engine(
    name: str,
    device: str,
    examples: int,
    *,
    slack_bytes: int | None = None,
    derandomize: bool = False,
) -> Counter[str]:
    """Random lives of one strategy; returns how often what happened, over all examples.

    `slack_bytes` is what a GPU has beyond the KV budget: with little of it the allocator itself
    refuses. None leaves the card as it is.
    """
    seen: Counter[str] = Counter()
    gc.collect()  # buffers of an engine before, which must not be freed during a recording
    trace = record(SHAPE, 1) if device == "cuda" else None

    # Examples share an allocator: one that is run again may find it otherwise. And they are long:
    # none is shrunk.
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        derandomize=derandomize,
    )
    @given(
        planned=plans,
        prefill=st.one_of(chunked, whole),
        other=others,
        budget=st.sampled_from(BUDGETS),
        stop_after=stops,
    )
    def example(
        planned: list[Planned],
        prefill: dict[str, Any],
        other: dict[str, Any],
        budget: int,
        stop_after: int | None,
    ) -> None:
        with _card(name, budget, device, slack_bytes) as backend:
            empty = backend.usage()
            lab = _lab(backend, budget, limits(**prefill, **other), trace)
            watch = Watch(lab, budget, limits(**prefill, **other))
            sequences = life(lab, watch, planned, stop_after)
            lab.engine.stop(lab.now)
            static = other["batching"] == "static"
            check_ends(lab, sequences, static=static)
            check_retries(lab)
            if static:
                assert not lab.engine.gaps.weighted()[0].size
            else:
                check_gaps(lab, watch)
            check_account(lab, watch)
            for sequence in lab.engine.running:
                lab.backend.free(sequence.id)
            left = lab.backend.usage()
            left = left._replace(cached=0, free=left.free + left.cached)
            assert left == empty, "something was not given back"
            lab.backend.check_integrity()
        seen.update(end.status.value for end in lab.ends)
        seen["preemptions"] += lab.engine.preemptions
        seen["preempted with branches"] += watch.preempted_with_branches
        seen["cancelled with branches"] += watch.cancelled_with_branches
        seen["paused and waiting"] += watch.paused_and_waiting
        seen["shared"] += sum(usage.shared > 0 for usage in watch.usages)
        seen["memory_bound"] += sum(step.memory_bound for step in lab.steps)
        kinds = Counter(incident["kind"] for incident in lab.engine.incidents.drain())
        seen.update(kinds)
        assert lab.engine.preemptions == sum(end.sequence.preemptions for end in lab.ends)

    example()
    return seen


def _lab(backend: Any, budget: int, chosen: Any, trace: ActivationTrace | None) -> Lab:
    if trace is None:
        return Lab(backend, budget, TOKEN_BYTES, chosen)
    calls = DriverCalls()
    activations = Activations(trace, ages=False, driver_calls=lambda: sum(calls.read().values()))
    return Lab(
        backend, budget, TOKEN_BYTES, chosen, activations=activations, driver_calls=calls.read
    )


@contextlib.contextmanager
def _card(name: str, budget: int, device: str, slack_bytes: int | None) -> Iterator[Backend]:
    """A strategy with its memory, on a card with so much beside it."""
    if slack_bytes is None:
        yield started(name, budget, device)
        return
    torch.cuda.empty_cache()
    if name.startswith(POOLED):  # taken at once, in whole pages
        backend = started(name, budget, device)
        with _held_back(all_but=slack_bytes):
            yield backend
    else:
        with _held_back(all_but=slack_bytes + budget):
            yield started(name, budget, device)


def _held_back(all_but: int) -> HeldBack:
    free, _ = torch.cuda.mem_get_info()
    return hold_back((free - all_but) // PAGE_BYTES * PAGE_BYTES)


def on_virtual_gpu(payload: dict[str, Any]) -> list[dict[str, int]]:
    """A job: random lives of one strategy in PyTorch's caching allocator, for each slack."""
    return [
        check_random_engine(payload["strategy"], "cuda", payload["examples"], slack_bytes=slack)
        for slack in payload["slack_bytes"]
    ]
