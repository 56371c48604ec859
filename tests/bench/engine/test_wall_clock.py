"""The engine on a wall clock: the same requests and tokens as on a virtual one, in real time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from backends.base import KvLayout
from backends.paged import Paged
from bench.engine import wall_clock
from bench.engine.driver import drive as drive_virtual
from bench.engine.engine import Engine
from bench.engine.users import Users
from bench.engine.wall_clock import Clock, Schedule, drive
from bench.metrics.status import Status
from bench.metrics.summary import late_steps, warnings
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
    drive(
        on_wall.engine,
        Schedule(Users(on_wall.engine, requests()), None, clock),
        clock,
        lambda now: None,
    )
    drive_virtual(virtual.engine, Users(virtual.engine, requests()), None, lambda now: None)
    for each in (on_wall, virtual):
        assert sorted(each.ended(Status.COMPLETED)) == [*range(8), *range(100, 108)]
    assert on_wall.engine.output_tokens == virtual.engine.output_tokens == 8 * 15


def test_modelled_steps_are_slept_and_a_scale_shortens_the_sleep() -> None:
    for scale in (1.0, 20.0):
        ran, clock = lab(), Clock(scale)
        began = time.monotonic()
        passed = drive(
            ran.engine,
            Schedule(Users(ran.engine, requests()), None, clock),
            clock,
            lambda now: None,
        )
        wall_s = time.monotonic() - began
        assert passed <= wall_s * scale
        assert ran.engine.executor.modelled_s <= passed


def test_a_run_can_be_ended_at_a_time() -> None:
    ran, clock = lab(), Clock()
    endless = (Request(number, 0.001 * number, 100, 100) for number in range(10**6))
    drive(ran.engine, Schedule(Users(ran.engine, endless), 0.1, clock), clock, lambda now: None)
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


class HandClock:
    """Stands for the module time: a time that moves only when it is told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


class SlowTalker:
    """A Traffic of requests that were all sent at 0, which takes `talk_s` to tell of a step."""

    def __init__(self, hands: HandClock, unsent: list[Request], talk_s: float) -> None:
        self._hands = hands
        self._unsent = unsent
        self._talk_s = talk_s
        self.over = True

    def wait(self, until_s: float) -> None:
        self._hands.now_s = max(self._hands.now_s, until_s)

    def act(self, engine: Engine, now: float) -> None:
        while self._unsent:
            engine.add(self._unsent.pop(), now)

    def tell(self, now: float) -> None:
        self._hands.now_s += self._talk_s


def modelled_and_passed_s(monkeypatch: pytest.MonkeyPatch, talk_s: float) -> tuple[float, float]:
    """Of 20 steps on a machine that computes in no time."""
    hands = HandClock()
    monkeypatch.setattr(wall_clock, "time", hands)
    ran, clock = lab(), Clock()
    traffic = SlowTalker(hands, [Request(0, 0.0, 20, 20)], talk_s)
    passed_s = drive(ran.engine, traffic, clock, lambda now: None)
    assert ran.ended(Status.COMPLETED) == [0]
    return ran.engine.executor.modelled_s, passed_s


def test_what_is_done_between_steps_takes_no_modelled_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick_s, passed_s = modelled_and_passed_s(monkeypatch, talk_s=0.0)
    assert passed_s == pytest.approx(quick_s)
    modelled_s, passed_s = modelled_and_passed_s(monkeypatch, talk_s=quick_s / 20 / 2)
    assert passed_s == pytest.approx(modelled_s) == pytest.approx(quick_s)


def test_a_machine_too_slow_for_the_modelled_one_falls_behind_no_further_than_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each second step begins where the machine is, not where the model was."""
    talk_s, _ = modelled_and_passed_s(monkeypatch, talk_s=0.0)
    _, passed_s = modelled_and_passed_s(monkeypatch, talk_s)
    assert passed_s >= 10 * talk_s


class SlowRun:
    """An executor's run that takes `factor` times what it models."""

    def __init__(self, hands: HandClock, ran: Lab, factor: float) -> None:
        self._hands = hands
        self._run = ran.engine.executor.run
        self._factor = factor

    def __call__(self, *what: Any) -> Any:
        computed = self._run(*what)
        self._hands.now_s += self._factor * computed.seconds
        return computed


@pytest.mark.parametrize(("factor", "late"), [(0.5, False), (1.5, True)])
def test_steps_that_take_longer_to_compute_than_to_model_are_counted(
    factor: float, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands = HandClock()
    monkeypatch.setattr(wall_clock, "time", hands)
    ran, clock = lab(), Clock()
    monkeypatch.setattr(ran.engine.executor, "run", SlowRun(hands, ran, factor))
    drive(ran.engine, SlowTalker(hands, [Request(0, 0.0, 20, 20)], 0.0), clock, lambda now: None)
    modelled_s = ran.engine.executor.modelled_s
    figures = late_steps(ran.engine)
    assert figures == {
        "share": 1.0 if late else 0.0,
        "late_s": pytest.approx((factor - 1) * modelled_s if late else 0.0),
    }
    recorder = SimpleNamespace(busy_s=modelled_s)
    said = warnings(ran.engine, recorder)  # type: ignore[arg-type]
    assert [("20 of 20 steps" in each, "lower it" in each) for each in said] == [
        (True, True)
    ] * late
