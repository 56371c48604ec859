"""summary.json: the figures of a run, from what it recorded (docs/metrics.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.engine.engine import Engine
from bench.metrics.accounting import MemoryAccount
from bench.metrics.outcomes import ratio
from bench.metrics.recorder import Recorder
from bench.metrics.request_figures import read_requests, request_figures

TOO_LATE = 0.01
"""Of the time of all steps: what they may end late by, before it is said."""


def figures(folder: Path, engine: Engine, recorder: Recorder, simulated_s: float) -> dict[str, Any]:
    """All that traffic and memory gave, for summary.json; undefined is null."""
    requests = read_requests([folder])
    return {
        **request_figures(requests, engine.sent, engine.gaps.weighted(), simulated_s),
        **engine_figures(engine, recorder, simulated_s),
    }


def engine_figures(engine: Engine, recorder: Recorder, simulated_s: float) -> dict[str, Any]:
    """What the engine knows of a run so far, at any moment of it."""
    return {
        "batch": {
            "mean": ratio(recorder.sequence_s, recorder.busy_s),
            "max": recorder.batch_max or None,
        },
        "preemptions": engine.preemptions,
        "late_steps": late_steps(engine),
        "warnings": warnings(engine, recorder),
        "prefix_cache": prefix_cache(engine),
        "sharing": sharing(engine.account),
        "memory_bound": memory_bound(engine.account, simulated_s),
        "held_waste": held_waste(engine.account),
        "incidents": engine.incidents.count,
        "simulated_s": simulated_s,
    }


def late_steps(engine: Engine) -> dict[str, float | None] | None:
    """Steps that took longer to compute than to model, on a wall clock: the modelled GPU is slower
    by so much than it would be. `share` is of all steps; null where steps are measured."""
    if engine.executor.measures:
        return None
    late = engine.late_steps
    return {"share": ratio(late.count, engine.steps), "late_s": late.late_s}


def warnings(engine: Engine, recorder: Recorder) -> list[str]:
    """What makes the figures doubtful, a sentence each."""
    late = engine.late_steps
    if late.late_s <= TOO_LATE * recorder.busy_s:
        return []
    return [
        f"{late.count} of {engine.steps} steps took longer to compute than to model, "
        f"{late.late_s:.1f} s in {recorder.busy_s:.1f} s of steps: this machine is too slow for "
        "time_scale; lower it."
    ]


def memory_bound(account: MemoryAccount, simulated_s: float) -> dict[str, float | None] | None:
    """Shares of the KV budget, averaged over memory-bound time; null if there was none.

    `share_of_time` is of the whole run. `external` is what was free while a request was refused
    for want of memory.
    """
    bound = account.bound
    if bound.time_s == 0:
        return None
    whole = account.budget_bytes * bound.time_s
    unfilled = bound.unfilled
    token_bytes = account.token_bytes
    return {
        "share_of_time": ratio(bound.time_s, simulated_s),
        "token_states": bound.token_states / whole,
        "reservation": unfilled.reservation * token_bytes / whole,
        "internal": unfilled.internal * token_bytes / whole,
        "undetermined": unfilled.undetermined * token_bytes / whole,
        "rounding": bound.rounding / whole,
        "cached": bound.cached / whole,
        "external": bound.free / whole,
        "batch_mean": bound.sequence_s / bound.time_s,
    }


def prefix_cache(engine: Engine) -> dict[str, Any] | None:
    """What the prefix cache found; null for a backend without one."""
    backend = engine.memory.backend
    if not backend.caches_prefixes:
        return None
    return engine.memory.prefix_cache.summary(backend.evicted_blocks)


def sharing(account: MemoryAccount) -> dict[str, float | None]:
    """`saved`: shared / (held + shared) over the whole run: the part of what sequences would hold
    without sharing that they need not (PagedAttention, section 6.3)."""
    whole = account.held_byte_s + account.shared_byte_s
    return {"saved": ratio(account.shared_byte_s, whole)}


def held_waste(account: MemoryAccount) -> float | None:
    """1 - live tokens / held slots over the whole run, whatever the load."""
    if account.held_byte_s == 0:
        return None
    return 1 - account.token_byte_s / account.held_byte_s
