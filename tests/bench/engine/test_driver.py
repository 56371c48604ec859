"""When requests are sent: at their times, and later turns after those before them."""

from __future__ import annotations

import math

from backends.base import KvLayout
from backends.paged import Paged
from bench.engine.driver import drive
from bench.engine.users import Users
from bench.metrics.status import Status
from tests.bench.engine.lab import Lab, limits
from workloads.base import Request


def driven(*requests: Request, stop_after_s: float | None = None) -> Lab:
    backend = Paged()
    backend.start(KvLayout(1, 4096, 512, 4 << 20, "cpu"))
    lab = Lab(backend, 4 << 20, 4096, limits())
    lab.now = drive(lab.engine, Users(lab.engine, requests), stop_after_s, lambda now: None)
    return lab


def test_a_later_turn_is_sent_its_think_time_after_the_one_before_ended() -> None:
    third = Request(2, 0.0, 60, 4)
    second = Request(1, 7.5, 40, 4, next_turn=third)
    lab = driven(Request(0, 1.0, 20, 4, next_turn=second), Request(3, 2.0, 20, 4))
    ends = {end.sequence.id: end for end in lab.ends}
    assert {number: end.status for number, end in ends.items()} == dict.fromkeys(
        range(4), Status.COMPLETED
    )
    # to the next whole nanosecond
    assert ends[1].sequence.sent_s == math.ceil((ends[0].end_s + 7.5) * 1e9) / 1e9
    assert ends[1].sequence.request.scheduled_s == ends[1].sequence.sent_s
    assert ends[2].sequence.sent_s == math.ceil(ends[1].end_s * 1e9) / 1e9
    assert ends[3].sequence.sent_s == 2.0


def test_a_turn_is_sent_even_if_the_one_before_was_rejected() -> None:
    second = Request(1, 3.0, 40, 4)
    lab = driven(Request(0, 1.0, 600, 4, next_turn=second))
    assert [(end.sequence.id, end.status) for end in lab.ends] == [
        (0, Status.REJECTED), (1, Status.COMPLETED),
    ]  # fmt: skip
    assert lab.ends[1].sequence.sent_s == 4.0


def test_turns_after_the_end_of_the_run_are_not_sent() -> None:
    second = Request(1, 30.0, 40, 4)
    lab = driven(Request(0, 0.0, 20, 4, next_turn=second), stop_after_s=10.0)
    assert [end.sequence.id for end in lab.ends] == [0]
    assert (lab.engine.sent, lab.now) == (1, 10.0)
