"""What users do in process: leave in the queue, in prefill, in mid-answer; read slowly; wait."""

from __future__ import annotations

import math
from typing import Any

import pytest

from backends.base import KvLayout
from backends.contiguous import Contiguous
from backends.paged import Paged
from bench.engine.driver import drive
from bench.engine.users import Users
from bench.metrics.status import Status
from tests.bench.engine.lab import SHAPE, Lab, limits
from workloads.base import PATIENT, Client, ClosedLoop, Leave, Request

TOKEN_BYTES = SHAPE.kv_bytes_per_token("fp16", 1)
BUDGET = 64 << 20


def lab(**changed: Any) -> Lab:
    backend = Paged(block_size=16)
    backend.start(KvLayout(SHAPE.layers, TOKEN_BYTES, 512, BUDGET, "cpu"))
    return Lab(backend, BUDGET, TOKEN_BYTES, limits(**{"token_budget": 64, **changed}))


def send(
    *requests: Request,
    loop: ClosedLoop | None = None,
    buffer_tokens: int | None = 8,
    stop_after_s: float | None = None,
    ran: Lab | None = None,
) -> Lab:
    ran = ran or lab()
    ran.engine.on_step = ran.steps.append
    users = Users(ran.engine, requests, loop, buffer_tokens)
    ran.now = drive(ran.engine, users, stop_after_s, lambda now: None)
    return ran


def leaving(**when: float) -> Client:
    return Client(Leave("away", **when))  # type: ignore[arg-type]


def after(end_s: float, seconds: float) -> float:
    """So long after an end, to the next whole nanosecond."""
    return math.ceil((end_s + seconds) * 1e9) / 1e9


def test_a_client_leaves_with_as_many_tokens_as_it_waited_for() -> None:
    ran = send(Request(0, 0.0, 20, 50, client=leaving(after_tokens=7)), Request(1, 0.0, 20, 50))
    first, second = ran.ends
    assert (first.status, first.cause) == (Status.CANCELLED, "the client left (away)")
    assert first.sequence.generated == 7
    assert first.end_s == first.sequence.last_token_s
    assert (second.status, second.sequence.generated) == (Status.COMPLETED, 50)


def test_a_client_leaves_in_the_queue_and_in_mid_prefill() -> None:
    """One sequence at a time, its 300 tokens in five steps: the second one is never admitted, the
    third is half computed."""
    alone = send(Request(0, 0.0, 300, 40)).now
    prefill_s = [step.end_s for step in send(Request(0, 0.0, 300, 1)).steps]
    assert len(prefill_s) == 5
    ran = send(
        Request(0, 0.0, 300, 40),
        Request(1, 0.0, 20, 40, client=leaving(after_s=alone / 2, after_tokens=1)),
        Request(2, 0.0, 300, 40, client=leaving(after_s=alone + prefill_s[1], after_tokens=1)),
        ran=lab(max_num_seqs=1),
    )
    queued, whole, half = ran.ends
    assert [end.sequence.id for end in ran.ends] == [1, 0, 2]
    assert (queued.status, queued.sequence.admitted_s) == (Status.CANCELLED, None)
    assert whole.status is Status.COMPLETED
    assert (half.status, half.sequence.generated) == (Status.CANCELLED, 0)
    assert 64 <= half.sequence.computed < 300
    assert ran.engine.memory.usage().held == 0


def test_who_would_leave_before_the_first_token_leaves_with_it() -> None:
    ran = send(Request(0, 0.0, 20, 50, client=leaving(after_s=1e3, after_tokens=1)))
    assert (ran.ends[0].status, ran.ends[0].sequence.generated) == (Status.CANCELLED, 1)
    assert ran.now < 1e3  # nobody waits for a client that is gone


def test_whoever_has_the_whole_answer_did_not_leave() -> None:
    ran = send(Request(0, 0.0, 20, 5, client=leaving(after_s=1e3)))
    assert ran.ends[0].status is Status.COMPLETED
    assert ran.now < 1e3


def test_a_later_turn_follows_one_that_was_left() -> None:
    later = Request(1, 2.0, 20, 5)
    ran = send(Request(0, 0.0, 20, 50, next_turn=later, client=leaving(after_tokens=2)))
    assert [end.status for end in ran.ends] == [Status.CANCELLED, Status.COMPLETED]
    assert ran.ends[1].sequence.sent_s == after(ran.ends[0].end_s, 2.0)


def test_a_slow_reader_is_never_further_behind_than_its_buffer() -> None:
    """At 10 tokens/s the 40th token is read 3.9 s after the first; with 8 kept for the reader the
    engine gives it no sooner than the 32nd is read, at 3.1 s, and that in runs of 4."""
    rate = 10.0
    ran = send(Request(0, 0.0, 20, 40, client=Client(tokens_per_s=rate)))
    (end,) = ran.ends
    sequence = end.sequence
    assert end.status is Status.COMPLETED
    assert sequence.first_token_s is not None
    assert (40 - 8 - 1) / rate <= end.end_s - sequence.first_token_s <= 39 / rate
    patient = send(Request(0, 0.0, 20, 40)).now
    assert patient < 1.0


def test_a_slow_readers_memory_stays_held_while_nothing_is_computed() -> None:
    ran = send(Request(0, 0.0, 20, 40, client=Client(tokens_per_s=10.0)))
    account = ran.engine.account
    computed_s = sum(step.end_s - step.start_s for step in ran.steps)
    assert computed_s < 1.0 < account.time_s == pytest.approx(ran.now)
    # two to four blocks of 16 slots, all the time
    assert 2 <= account.held_byte_s / (16 * TOKEN_BYTES) / ran.now <= 4


def test_a_slow_reader_does_not_hold_up_the_others() -> None:
    ran = send(Request(0, 0.0, 20, 40, client=Client(tokens_per_s=10.0)), Request(1, 0.0, 20, 40))
    assert [end.sequence.id for end in ran.ends] == [1, 0]
    assert ran.ends[0].end_s < 1.0 < ran.ends[1].end_s


def test_without_a_bound_the_server_keeps_what_is_not_read() -> None:
    request = Request(0, 0.0, 20, 40, client=Client(tokens_per_s=10.0))
    assert send(request, buffer_tokens=None).now == send(Request(0, 0.0, 20, 40)).now


def test_a_client_that_reads_faster_than_tokens_come_is_no_slow_one() -> None:
    request = Request(0, 0.0, 20, 40, client=Client(tokens_per_s=1e6))
    assert send(request).now == send(Request(0, 0.0, 20, 40)).now


def test_users_of_a_closed_loop_have_one_session_each() -> None:
    later = Request(100, 0.5, 40, 5)
    requests = [
        Request(number, 0.25, 20, 10 + number, next_turn=later if number == 0 else None)
        for number in range(12)
    ]
    ran = send(*requests, loop=ClosedLoop(users=3, stagger_s=0.125))
    sent = {end.sequence.id: end.sequence.sent_s for end in ran.ends}
    ends = {end.sequence.id: end.end_s for end in ran.ends}
    assert set(ends) == {*range(12), 100}
    assert [sent[user] for user in range(3)] == [0.25, 0.375, 0.5]
    assert sent[100] == after(ends[0], 0.5)
    assert sent[3] == after(ends[100], 0.25)  # user 0 goes on after its later turn
    for number in range(4, 12):  # session i is of user i mod 3
        assert sent[number] == after(ends[number - 3], 0.25)


def test_a_closed_loop_ends_by_time_or_with_its_requests() -> None:
    def endless() -> Any:
        return (Request(number, 0.0, 20, 10) for number in range(10**9))

    ran = lab()
    loop = ClosedLoop(users=2, stagger_s=0.0, until_s=1.0)
    drive(ran.engine, Users(ran.engine, endless(), loop), None, lambda now: None)
    sent = [end.sequence.sent_s for end in ran.ends]
    assert ran.engine.idle
    assert {end.status for end in ran.ends} == {Status.COMPLETED}
    assert max(sent) < 1.0 < 1.1 * max(sent)
    few = send(*(Request(number, 0.0, 20, 10) for number in range(2)), loop=loop._replace(users=5))
    assert len(few.ends) == 2


@pytest.mark.parametrize("client", [PATIENT, leaving(after_s=0.0)], ids=["rejected", "left"])
def test_users_whose_sessions_end_at_once_let_time_pass(client: Client) -> None:
    tokens = 600 if client is PATIENT else 20  # of 512 at most

    def endless() -> Any:
        return (Request(number, 0.0, tokens, 10, client=client) for number in range(10**9))

    ran = lab()
    users = Users(ran.engine, endless(), ClosedLoop(users=2, stagger_s=0.0))
    assert drive(ran.engine, users, 1.0, lambda now: None) == 1.0
    # a round trip of 10 ms each
    assert len(ran.ends) == pytest.approx(200, abs=4)


def test_a_static_batchs_answers_come_at_once_so_that_nobody_leaves_in_mid_answer() -> None:
    backend = Contiguous()
    backend.start(KvLayout(SHAPE.layers, TOKEN_BYTES, 512, BUDGET, "cpu"))
    static = Lab(backend, BUDGET, TOKEN_BYTES, limits(batching="static", prefill="whole"))
    ran = send(
        Request(0, 0.0, 20, 40, client=leaving(after_tokens=3)),
        Request(1, 0.0, 20, 40, client=Client(tokens_per_s=5.0)),
        ran=static,
    )
    assert {end.status for end in ran.ends} == {Status.COMPLETED}
    assert math.isfinite(ran.now)
