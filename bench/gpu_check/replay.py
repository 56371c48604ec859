"""Part 2: one recorded allocation sequence, on the card and on a virtual GPU of its size.

The sequence is recorded from a short run on the virtual GPU: buffers of requests that come and go
and the activations of every step. Both replay it in PyTorch's caching allocator, once with all of
the card's memory and once with less than the sequence's reserved bytes, so that segments go back to
the driver and others are taken. Bytes allocated and reserved must be the same after every event.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from bench.device.history import Event
from bench.gpu_check.events import Difference, Replay, compare, read_events
from bench.gpu_check.part import Task, Verdict, write_rows
from bench.gpu_check.processes import Jobs, PartError, run_fragbench

RECORDINGS = {"contiguous": "", "contiguous_expandable": "expandable_segments:True"}
"""Backends, and the allocator's settings for their replays."""

TRAFFIC = (
    "backend.reserve=oracle",  # buffers of many sizes
    "model=llama3_8b",
    "model.layers=8",  # every layer does the same
    "workload=mixed",
    "workload.rate_rps=12",
    "kv_budget=2GiB",
    "stop_after_s=5",
    "memory_snapshot=true",
)
COLUMNS = ("event", "bytes", "allocated_card", "allocated_virtual", "reserved_card",
           "reserved_virtual")  # fmt: skip


class Pair(NamedTuple):
    """One sequence replayed on both."""

    name: str
    events: list[Event]
    card: Replay
    virtual: Replay


def check(task: Task, limit_s: float) -> Verdict:
    """Every replay the same on both, event by event."""
    deadline = time.monotonic() + limit_s
    pairs: list[Pair] = []
    recorded = {name: record(task, name, limit_s / 3) for name in RECORDINGS}
    left_s, log = deadline - time.monotonic(), task.folder / "replay.log"
    with (
        Jobs(task.real, left_s, task.say, log) as card,
        Jobs(task.virtual, left_s, task.say, log) as virtual,
    ):
        for name, events in recorded.items():
            for pair in _replay_twice(name, events, card, virtual):
                task.say(_describe(pair))
                write_pair(task, pair)
                pairs.append(pair)
    return judge(pairs)


def record(task: Task, backend: str, limit_s: float) -> list[Event]:
    """The events of a run on the virtual GPU. Raises PartError."""
    folder = task.folder / f"recording_{backend}"
    where = ["device=virtual", *task.card.virtual_overrides(), f"out={folder}"]
    arguments = ["run", f"backend={backend}", *TRAFFIC, *where]
    code = run_fragbench(arguments, task.folder / f"recording_{backend}.log", limit_s, task.say)
    snapshot = folder / "memory_snapshot.pickle"
    if code or not snapshot.is_file():
        raise PartError(f"the run to record ended with exit code {code}, see {folder}.log")
    events = read_events(snapshot)
    snapshot.unlink()  # megabytes that the CSV says again
    return events


def _replay_twice(name: str, events: list[Event], card: Jobs, virtual: Jobs) -> list[Pair]:
    """Without a limit, and with one between the most that was allocated and reserved."""
    conf = RECORDINGS[name]
    free = _replay(virtual, events, conf, None)
    limit_bytes = (max(free.allocated) + max(free.reserved)) // 2
    return [
        Pair(name, events, _replay(card, events, conf, None), free),
        Pair(
            f"{name}_pressed",
            events,
            _replay(card, events, conf, limit_bytes),
            _replay(virtual, events, conf, limit_bytes),
        ),
    ]


def _replay(jobs: Jobs, events: list[Event], conf: str, limit_bytes: int | None) -> Replay:
    payload = {"events": events, "limit_bytes": limit_bytes}
    return Replay(**jobs.run("bench.gpu_check.replay_job:replay_events", payload, conf))


def write_pair(task: Task, pair: Pair) -> None:
    """Its events as CSV: bytes above 0 are allocated, below are freed."""
    signed = [size if index >= 0 else -size for index, size in pair.events]
    columns = (pair.card.allocated, pair.virtual.allocated, pair.card.reserved,
               pair.virtual.reserved)  # fmt: skip
    rows = zip(range(len(signed)), signed, *columns, strict=True)
    write_rows(task.folder / f"replay_{pair.name}.csv", COLUMNS, rows)


def judge(pairs: Sequence[Pair]) -> Verdict:
    """What all replays came to."""
    differences = {p.name: compare(p.events, p.card, p.virtual) for p in pairs}
    found = [_different(p, d) for p in pairs if (d := differences[p.name])]
    events = sum(len(pair.events) for pair in pairs)
    retries = sum(pair.card.retries for pair in pairs)
    same = f"{len(pairs) - len(found)} of {len(pairs)} replays the same after every event"
    figures = f"{same} ({events:,} events, {retries} times memory went back to the driver first)"
    return Verdict(bool(pairs) and not found, "; ".join([figures, *found]))


def _different(pair: Pair, difference: Difference) -> str:
    return (
        f"{pair.name}: {difference.first}; {difference.events:,} of {len(pair.events):,} events "
        f"differ, reserved by {difference.largest_share:.2%} at most"
    )


def _describe(pair: Pair) -> str:
    peaks = ", ".join(
        f"{where}: at most {max(replay.allocated):,} bytes allocated, {max(replay.reserved):,} "
        f"reserved, {replay.retries} retries, {replay.refused} refused"
        for where, replay in (("card", pair.card), ("virtual", pair.virtual))
    )
    return f"{pair.name}: {peaks}"
