"""The engine on a wall clock: the same requests and tokens as on a virtual one, in real time."""

from __future__ import annotations

import time
from collections.abc import Iterator

from backends.base import KvLayout
from backends.paged import Paged
from bench.engine.driver import drive as drive_virtual
from bench.engine.wall_clock import Clock, Schedule, drive
from bench.metrics.status import Status
from tests.bench.engine.lab import SHAPE, Lab, limits
from workloads.base import Request

TOKEN_BYTES = SHAPE.kv_bytes_per_token("fp16", 1)


def requests() -> Iterator[Request]:
    for number in range(8):
        later = Request(100 + number, 0.002, 40, 5)
        yield Request(number, 0.004 * number, 20 + number, 10, next_turn=later)


def lab() -> Lab:
    backend = Paged(block_size=16)
    budget = 64 << 20
    backend.start(KvLayout(SHAPE.layers, TOKEN_BYTES, 512, budget, "cpu"))
    return Lab(backend, budget, TOKEN_BYTES, limits(token_budget=64, max_num_seqs=4))


def test_requests_and_tokens_are_those_of_the_virtual_clock() -> None:
    on_wall, virtual = lab(), lab()
    clock = Clock()
    drive(on_wall.engine, Schedule(requests(), None, clock), clock, lambda now: None)
    drive_virtual(virtual.engine, requests(), None, lambda now: None)
    for each in (on_wall, virtual):
        assert sorted(each.ended(Status.COMPLETED)) == [*range(8), *range(100, 108)]
    assert on_wall.engine.output_tokens == virtual.engine.output_tokens == 8 * 15


def test_modelled_steps_are_slept_and_a_scale_shortens_the_sleep() -> None:
    for scale in (1.0, 20.0):
        ran, clock = lab(), Clock(scale)
        began = time.monotonic()
        passed = drive(ran.engine, Schedule(requests(), None, clock), clock, lambda now: None)
        wall_s = time.monotonic() - began
        assert passed <= wall_s * scale
        assert ran.engine.executor.modelled_s <= passed


def test_a_run_can_be_ended_at_a_time() -> None:
    ran, clock = lab(), Clock()
    endless = (Request(number, 0.001 * number, 100, 100) for number in range(10**6))
    drive(ran.engine, Schedule(endless, 0.1, clock), clock, lambda now: None)
    assert ran.ended(Status.UNFINISHED)
    assert ran.engine.sent < 1000


def test_a_paused_sequence_keeps_its_memory_and_gets_no_token() -> None:
    ran = lab()
    one, other = ran.send((20, 30), (20, 30))
    ran.step()
    one.paused = True
    held = one.slots
    for _ in range(10):
        ran.step()
    assert (one.generated, one.slots, other.generated) == (1, held, 11)
    one.paused = other.paused = True
    assert ran.step() is None
    assert not ran.engine.idle
    one.paused = other.paused = False
    ran.run()
    assert ran.ended(Status.COMPLETED) == [1, 0]


def test_a_sequence_that_has_said_enough_is_completed_and_holds_nothing() -> None:
    ran = lab()
    (sequence,) = ran.send((20, 30))
    ran.step()
    ran.step()
    ran.engine.complete(sequence, ran.now)
    assert (ran.ended(Status.COMPLETED), sequence.generated) == ([0], 2)
    assert ran.engine.idle
    assert ran.backend.usage().held == 0
