"""Continuous batching by hand: ten blocks of 16 tokens in host memory, unless said otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from backends.base import KvLayout
from backends.contiguous import Contiguous
from backends.paged import Paged
from bench.engine.driver import drive
from bench.engine.users import Users
from bench.metrics.status import Status
from tests.bench.engine.lab import Call, Lab, limits
from workloads.base import Request

BUDGET = 2 << 20
TOKEN_BYTES = 11_914  # 2 MiB // (16 x 11,914) is 11 blocks, one of which is the null block
MAX_MODEL_LEN = 160


def paged_lab(*, watermark: float = 0.0, max_model_len: int = MAX_MODEL_LEN, **changes: Any) -> Lab:
    backend = Paged(watermark=watermark)
    backend.start(KvLayout(1, TOKEN_BYTES, MAX_MODEL_LEN, BUDGET, "cpu"))
    assert backend.usage().free == 10 * 16 * TOKEN_BYTES
    return Lab(backend, BUDGET, TOKEN_BYTES, limits(**changes), max_model_len=max_model_len)


def tokens(lab: Lab) -> list[int]:
    return [step.tokens for step in lab.steps]


def granted(lab: Lab, sequence: int) -> list[bool]:
    return [call.granted for call in lab.calls("reserve") if call.sequence == sequence]


def test_first_come_first_served_even_if_a_later_one_would_fit() -> None:
    lab = paged_lab()
    lab.send((100, 20), (100, 20), (16, 5))  # 7, 7 and 1 blocks of 10
    lab.step()
    assert lab.running == [0]
    assert lab.waiting == [1, 2]
    lab.run()
    # The first 19 further steps go to request 0; then the others start together.
    assert tokens(lab)[:21] == [100] + [1] * 19 + [100 + 16]
    assert lab.ended(Status.COMPLETED) == [0, 2, 1]


def test_a_chunked_prompt_gives_its_first_token_with_its_last_chunk() -> None:
    lab = paged_lab(token_budget=32)
    (sequence,) = lab.send((80, 3))
    lab.run()
    assert tokens(lab) == [32, 32, 16, 1, 1]
    assert sequence.first_token_s == lab.steps[2].end_s
    assert sequence.last_token_s == lab.steps[4].end_s
    assert sequence.computed == 80 + 3 - 1  # the last token's K and V are never needed


def test_decodes_come_before_a_prompt_in_the_token_budget() -> None:
    lab = paged_lab(token_budget=32)
    _, second = lab.send((10, 50), (60, 1))
    for _ in range(3):
        lab.step()
    # 10 + 22 of 60; 1 + 31; 1 + the last 7
    assert tokens(lab) == [32, 32, 8]
    assert second.first_token_s == lab.steps[2].end_s


def test_a_token_budget_below_the_batch_serves_the_oldest() -> None:
    lab = paged_lab(token_budget=2)
    lab.send((1, 4), (1, 4), (1, 4))
    lab.run()
    assert tokens(lab) == [2, 2, 2, 2, 1, 1, 1, 1]
    assert lab.ended(Status.COMPLETED) == [0, 1, 2]


def test_whole_prompts_share_the_budget_of_a_step_and_decodes_come_on_top() -> None:
    lab = paged_lab(prefill="whole", token_budget=100)
    lab.send((60, 5), (50, 5), (30, 5))
    lab.step()
    lab.step()
    # 60, and the next 50 do not fit the 40 left, which ends admission; then 1 + 50 + 30.
    assert tokens(lab) == [60, 81]
    assert lab.running == [0, 1, 2]


def test_the_youngest_is_preempted_goes_first_in_line_and_is_computed_again() -> None:
    lab = paged_lab()
    old, young = lab.send((70, 40), (70, 40))  # 5 blocks each: 80 slots
    for _ in range(11):
        lab.step()
    lab.send((16, 1))
    assert (young.computed, young.generated) == (80, 11)

    lab.step()  # the older one needs an 81st slot
    assert lab.running == [0]
    assert lab.waiting == [1, 2], "behind nobody, not even an older arrival"
    assert (young.computed, young.generated, young.known, young.preemptions) == (0, 11, 81, 1)
    assert [step.preempted for step in lab.steps] == [0] * 11 + [1]
    assert lab.steps[11].memory_bound

    lab.run()
    # 81 known tokens take 6 blocks, as the older one holds: it has to end first, after 40 steps.
    assert tokens(lab)[12:40] == [1] * 28
    assert tokens(lab)[40] == 81 + 16, "prompt and generated tokens, and the request behind"
    assert (young.generated, young.computed) == (40, 70 + 40 - 1)
    assert old.preemptions == 0
    assert lab.engine.preemptions == 1
    # Asked at the start, once after the preemption, and once after the older one gave back its.
    assert granted(lab, 1) == [True, False, True]
    assert granted(lab, 2) == [True]


def test_a_preemption_is_an_incident_that_names_both() -> None:
    lab = paged_lab()
    lab.send((70, 40), (70, 40))
    lab.run()
    first, second = lab.engine.incidents.drain()
    at = lab.steps[11].start_s
    told = {
        "kind": "extend_refused", "request_id": 0, "wanted_tokens": 81, "first_s": at,
        "last_s": at, "refusals": 1, "preempted_request": 1,
    }  # fmt: skip
    assert first.items() >= told.items()
    assert (second["kind"], second["request_id"]) == ("reserve_refused", 1)
    assert lab.engine.incidents.count == 2


def test_a_refused_admission_is_tried_again_only_after_something_was_freed() -> None:
    lab = paged_lab()
    lab.send((40, 2), (40, 5), (40, 9), (100, 1))  # 3, 3, 3 and 7 blocks
    lab.run()
    # Refused at step 1 (1 block free) and at step 3 (4, the first has ended); at step 6 7 are free.
    of_the_last = [i for i, call in enumerate(lab.backend.calls) if call.sequence == 3]
    assert granted(lab, 3) == [False, False, True]
    assert lab.backend.calls[of_the_last[0] + 1] == Call("free", 0, granted=True)
    assert lab.backend.calls[of_the_last[1] + 1] == Call("free", 1, granted=True)
    bound = [step.memory_bound for step in lab.steps]
    assert bound == [True] * 5 + [False] * 4, "it waits for memory whether it is tried or not"


def test_a_wait_for_memory_is_one_incident_with_its_count() -> None:
    lab = paged_lab()
    lab.send((40, 2), (40, 5), (40, 9), (100, 1))
    lab.run()
    (incident,) = lab.engine.incidents.drain()
    told = {
        "kind": "reserve_refused",
        "request_id": 3,
        "wanted_tokens": 100,
        "first_s": 0.0,
        "last_s": lab.steps[2].start_s,
        "refusals": 2,
        "waited_s": lab.steps[5].start_s,
    }
    assert incident.items() >= told.items()
    assert lab.engine.incidents.count == 1


def test_a_wait_ends_with_the_client_and_lets_the_next_one_try() -> None:
    lab = paged_lab()
    _, second, _ = lab.send((100, 20), (100, 20), (16, 5))
    lab.step()
    assert lab.running == [0]
    lab.engine.cancel(second, lab.now)
    lab.step()
    assert lab.running == [0, 2], "the refusal was another request's"
    (incident,) = lab.engine.incidents.drain()
    assert incident["waited_s"] == lab.steps[0].end_s
    assert lab.ended(Status.CANCELLED) == [1]


def test_cancelling_gives_back_memory_at_once() -> None:
    lab = paged_lab()
    first, second = lab.send((100, 20), (100, 20))
    lab.step()
    lab.engine.cancel(first, lab.now)
    assert lab.backend.usage().held == 0
    lab.step()
    assert lab.running == [second.id]
    assert [(end.sequence.id, end.end_s) for end in lab.ends] == [(0, lab.steps[0].end_s)]


def test_what_can_never_fit_is_rejected_at_once() -> None:
    lab = paged_lab()
    lab.send((151, 10))
    (end,) = lab.ends
    assert (end.status, end.end_s) == (Status.REJECTED, 0.0)
    assert end.cause == "161 tokens exceed max_model_len=160"
    assert lab.engine.idle


def test_memory_is_needed_for_all_tokens_but_the_last() -> None:
    lab = paged_lab(max_model_len=1000)  # so that only memory limits the length
    lab.send((100, 61), (100, 62))  # 160 and 161 slots of 160
    assert [(end.sequence.id, end.cause) for end in lab.ends] == [
        (1, "162 tokens exceed the KV budget")
    ]
    lab.run()
    assert lab.ended(Status.COMPLETED) == [0]


def test_on_oom_fail_ends_who_is_refused_at_admission() -> None:
    lab = paged_lab(on_oom="fail")
    lab.send((100, 20), (100, 20), (16, 5))
    lab.step()
    assert lab.running == [0, 2]
    assert [(end.sequence.id, end.status, end.cause) for end in lab.ends] == [
        (1, Status.FAILED, "out of KV memory at admission")
    ]
    assert lab.steps[0].memory_bound
    (incident,) = lab.engine.incidents.drain()
    assert (incident["refusals"], incident["waited_s"]) == (1, 0.0)


def test_on_oom_fail_ends_who_is_refused_while_decoding() -> None:
    lab = paged_lab(on_oom="fail")
    old, young = lab.send((70, 40), (70, 40))
    for _ in range(12):
        lab.step()
    assert lab.running == [1], "nobody is preempted for it"
    assert [(end.sequence.id, end.cause) for end in lab.ends] == [
        (0, "out of KV memory while decoding")
    ]
    assert (old.generated, young.generated) == (11, 12)
    assert lab.engine.preemptions == 0


def test_one_that_runs_alone_and_cannot_grow_is_computed_again() -> None:
    """A buffer that grows is there twice while it moves: 5 + 6 slots are more than 10. Without its
    old buffer there is room: the last tokens cost a prefill each."""
    slot_bytes = 4096  # a page, in which host memory is counted
    backend = Contiguous(reserve="grow", layout="sequence")
    backend.start(KvLayout(1, slot_bytes, 10, 10 * slot_bytes, "cpu"))
    lab = Lab(backend, 10 * slot_bytes, slot_bytes, limits(), max_model_len=10)
    (sequence,) = lab.send((4, 5))
    lab.run()
    (end,) = lab.ends
    assert end.status == Status.COMPLETED
    # 4 slots, 5 and then 6, 7 and 8 anew: a token each.
    assert (sequence.generated, sequence.preemptions) == (5, 3)
    assert backend.usage().free == 10 * slot_bytes


def test_the_watermark_holds_back_admission_alone() -> None:
    lab = paged_lab(watermark=0.3)  # int(0.3 x 11) = 3 blocks
    lab.send((16, 140), (97, 1))  # 1 and 7 blocks
    lab.step()
    assert lab.running == [0], "9 blocks are free, of which admission leaves 3"
    lab.run()
    assert lab.ended(Status.COMPLETED) == [0, 1]
    # The first grows to 155 tokens, which is all 10 blocks.
    assert all(call.granted for call in lab.calls("extend"))


def test_the_watermark_does_not_keep_out_who_would_be_alone() -> None:
    lab = paged_lab(watermark=0.3)
    lab.send((155, 2))
    lab.step()
    assert lab.running == [0]


@pytest.mark.parametrize(("whole_prompt", "running"), [(True, [0]), (False, [0, 1])])
def test_admission_can_wait_for_room_for_the_whole_prompt(
    whole_prompt: bool, running: list[int]
) -> None:
    lab = paged_lab(token_budget=132, admit_whole_prompt=whole_prompt)
    # 7 blocks of 10, and 60 tokens of which 32 come first: 2 blocks now, 4 in all.
    lab.send((100, 40), (60, 5))
    lab.step()
    assert lab.running == running


@pytest.mark.parametrize("limit", [{"max_live_tokens": 100}, {"max_num_seqs": 1}])
def test_a_limit_is_not_want_of_memory(limit: dict[str, int]) -> None:
    lab = paged_lab(**limit)
    lab.send((60, 10), (60, 10))
    lab.run()
    assert tokens(lab) == [60] + [1] * 9 + [60] + [1] * 9, "one after the other"
    assert not any(step.memory_bound for step in lab.steps)
    assert granted(lab, 1) == [True], "memory is not even asked"
    assert lab.engine.incidents.count == 0


def test_the_live_token_limit_never_keeps_out_who_would_be_alone() -> None:
    lab = paged_lab(max_live_tokens=50)
    lab.send((60, 2))
    lab.run()
    assert lab.ended(Status.COMPLETED) == [0]


def test_live_tokens_are_those_known_now() -> None:
    lab = paged_lab(max_live_tokens=100)
    lab.send((60, 50), (37, 2))
    lab.step()
    assert lab.running == [0, 1]  # 60 + 37 <= 100
    lab = paged_lab(max_live_tokens=100)
    lab.send((60, 50))
    for _ in range(4):
        lab.step()
    lab.send((37, 2))
    lab.step()
    assert lab.running == [0]  # 64 + 37 > 100


def test_time_is_the_cost_models_and_copies_are_paid_in_their_step() -> None:
    slot_bytes = 4096
    backend = Contiguous(reserve="grow", layout="sequence")
    backend.start(KvLayout(1, slot_bytes, 100, 1000 * slot_bytes, "cpu"))
    lab = Lab(backend, 1000 * slot_bytes, slot_bytes, limits(), max_model_len=100)
    lab.send((50, 3))
    lab.run()
    executor = lab.engine.executor
    assert executor.copy_s(50 * slot_bytes, 1) > 0
    other = paged_lab()  # the same steps without copies, but for paged attention's cost
    other.engine.executor = executor
    other.send((50, 3))
    other.run()
    paid = [
        (step.end_s - step.start_s) - (free.end_s - free.start_s)
        for step, free in zip(lab.steps, other.steps, strict=True)
    ]
    expected = [0.0, executor.copy_s(50 * slot_bytes, 1), executor.copy_s(51 * slot_bytes, 1)]
    assert paid == pytest.approx(expected, abs=1e-12)


def test_a_run_that_is_stopped_while_idle_lasted_until_it_was_stopped() -> None:
    lab = paged_lab()
    requests = [Request(0, 0.0, 16, 2), Request(1, 121.0, 16, 2)]
    assert drive(lab.engine, Users(lab.engine, requests), 100.0, lambda now: None) == 100.0
    assert lab.engine.sent == 1


def test_one_that_is_paused_and_lost_its_memory_gets_none_and_lets_others_pass() -> None:
    lab = paged_lab()
    first, second = lab.send((20, 30), (20, 30))
    lab.step()
    second.paused = True
    lab.engine._scheduler.preempt(second)
    (third,) = lab.send((20, 5))
    for _ in range(10):
        lab.step()
    assert (second.generated, second.slots, lab.waiting) == (1, 0, [1])
    assert (first.generated, lab.ended(Status.COMPLETED)) == (11, [third.id])
    second.paused = False
    lab.run()
    assert lab.ended(Status.COMPLETED) == [2, 0, 1]
