"""One sequence on two cards, both virtual here: the same, unless a card or an event is not."""

from __future__ import annotations

import csv
import random
from dataclasses import replace

import pytest

from bench.device.history import Event
from bench.gpu_check import replay
from bench.gpu_check.card import Device, virtual_twin
from bench.gpu_check.events import Replay, compare
from bench.gpu_check.part import Task
from bench.gpu_check.processes import Jobs

MIB = 1 << 20


def random_events(count: int, most_bytes: int) -> list[Event]:
    """Allocations of all sizes, about half of which are freed again."""
    draw = random.Random(0)
    live: dict[int, int] = {}
    events: list[Event] = []
    for index in range(count):
        live[index] = int(2 ** draw.uniform(6, most_bytes.bit_length() - 1))
        events.append((index, live[index]))
        while len(live) > 20 or draw.random() < 0.3:
            freed = draw.choice(list(live))
            events.append((~freed, live.pop(freed)))
            if not live:
                break
    return events


EVENTS = random_events(400, 64 * MIB)


def replayed(
    device: Device, events: list[Event] = EVENTS, conf: str = "", limit_bytes: int | None = None
) -> Replay:
    with Jobs(device, 120, print) as jobs:
        return replay._replay(jobs, events, conf, limit_bytes)


@pytest.mark.parametrize("conf", ["", "expandable_segments:True"])
def test_live_bytes_are_those_of_the_sequence_rounded_to_512(twin: Device, conf: str) -> None:
    """From one large block or one of many small ones the allocator gives at most 1 MiB more than
    was asked for, with default settings; sizes below are rounded up to 512 bytes."""
    found = replayed(twin, conf=conf)
    live: dict[int, int] = {}
    for (index, size), allocated, reserved in zip(
        EVENTS, found.allocated, found.reserved, strict=True
    ):
        if index >= 0:
            live[index] = -(-size // 512) * 512
        else:
            del live[~index]
        assert sum(live.values()) <= allocated <= sum(live.values()) + len(live) * MIB
        assert allocated <= reserved
    assert found.refused == found.retries == 0


def test_a_limit_makes_memory_go_back_to_the_driver(twin: Device) -> None:
    free = replayed(twin)
    limit_bytes = (max(free.allocated) + max(free.reserved)) // 2
    pressed = replayed(twin, limit_bytes=limit_bytes)
    assert max(free.reserved) > limit_bytes >= max(pressed.reserved)
    assert pressed.retries > 0


def test_another_card_is_caught_and_the_event_named(task: Task) -> None:
    """With 64 MiB of free memory it refuses what the other still gives."""
    small = replace(task.card, free_bytes=64 * MIB)
    ours, theirs = replayed(task.virtual), replayed(virtual_twin(small))
    found = compare(EVENTS, ours, theirs)
    assert found is not None
    place = next(
        place
        for place, pair in enumerate(zip(ours.allocated, theirs.allocated, strict=True))
        if pair[0] != pair[1]
    )
    assert f"event {place} (allocates {EVENTS[place][1]:,} bytes)" in found.first
    assert theirs.addresses[place] == 0
    verdict = replay.judge([replay.Pair("small", EVENTS, ours, theirs)])
    assert not verdict.passed
    assert found.first in verdict.figures


def test_a_dropped_event_is_caught_and_named(twin: Device) -> None:
    place = next(p for p, (index, size) in enumerate(EVENTS) if p > 50 and index >= 0)
    dropped = EVENTS[:place] + EVENTS[place + 1 :]
    found = compare(EVENTS, replayed(twin), replayed(twin, dropped))
    assert found is not None
    assert f"event {place} (allocates {EVENTS[place][1]:,} bytes)" in found.first


@pytest.mark.long
def test_a_recorded_run_replays_alike_event_by_event(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = [s for s in replay.TRAFFIC if not s.startswith("stop_after_s")]
    monkeypatch.setattr(replay, "TRAFFIC", (*short, "stop_after_s=1"))
    verdict = replay.check(task, 300)
    assert verdict.passed, verdict.figures
    assert verdict.figures.startswith("4 of 4 replays the same")
    for name in ("contiguous", "contiguous_expandable_pressed"):
        with (task.folder / f"replay_{name}.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) > 1000
        assert all(row["reserved_card"] == row["reserved_virtual"] for row in rows)
        kept = sum(int(row["bytes"]) for row in rows)
        assert 0 <= kept <= int(rows[-1]["allocated_card"])
