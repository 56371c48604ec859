"""Sequences that decode in lockstep are as far, hold as much and end as each by itself would."""

from __future__ import annotations

from typing import Any

import pytest

from backends.base import KvLayout
from backends.paged import Paged
from bench.metrics.status import Status
from tests.bench.engine.lab import Lab, limits

TOKEN_BYTES = 4096
BUDGET_BYTES = 64 << 20
MAX_MODEL_LEN = 512
LENGTHS = [(40, 9), (1, 1), (70, 30), (16, 17), (33, 2), (50, 50), (15, 3)]


def lab(**changes: Any) -> Lab:
    backend = Paged()
    backend.start(KvLayout(1, TOKEN_BYTES, MAX_MODEL_LEN, BUDGET_BYTES, "cpu"))
    return Lab(backend, BUDGET_BYTES, TOKEN_BYTES, limits(**changes), max_model_len=MAX_MODEL_LEN)


@pytest.mark.parametrize("token_budget", [16, 64, 10_000])
def test_all_ends_and_steps_are_those_of_sequences_looked_at_one_by_one(token_budget: int) -> None:
    together, singly = (lab(token_budget=token_budget, max_num_seqs=16) for _ in range(2))
    singly.engine._in_lockstep = False
    heard: dict[Lab, list[tuple[int, int]]] = {together: [], singly: []}
    for each in (together, singly):
        said = heard[each]
        each.engine.on_token = lambda s, ids, said=said: said.append((s.id, s.generated))
        sequences = each.send(*LENGTHS)
        for sequence in sequences:
            sequence.followed = True
        each.run()
        for sequence, (prompt, output) in zip(sequences, LENGTHS, strict=True):
            assert (sequence.generated, sequence.computed) == (output, prompt + output - 1)
    assert together.steps == singly.steps
    assert heard[together] == heard[singly], "every token is heard of, in order of admission"
    ends = [
        [(end.sequence.id, end.status, end.end_s) for end in x.ends] for x in (together, singly)
    ]
    assert ends[0] == ends[1]
    assert {end.status for end in together.ends} == {Status.COMPLETED}
    assert together.backend.calls == singly.backend.calls, "memory changes hands in one order"


def test_one_that_is_paused_stands_still_while_the_others_go_on() -> None:
    ran = lab()
    one, other = ran.send((10, 40), (10, 40))
    for _ in range(5):
        ran.step()
    assert one.lockstep is not None, "it only decodes"
    one.paused = True
    for _ in range(20):
        ran.step()
    assert (one.generated, other.generated) == (5, 25)
    assert ran.engine.token_states == one.computed + other.computed == (10 + 4) + (10 + 24)
    one.paused = False
    ran.run()
    assert [end.sequence.id for end in ran.ends] == [other.id, one.id]
    assert one.generated == 40


def test_a_member_that_leaves_gives_back_what_it_held() -> None:
    ran = lab()
    one, other = ran.send((10, 40), (10, 40))
    for _ in range(5):
        ran.step()
    ran.engine.cancel(one, ran.now)
    assert (one.status, one.generated, one.slots) == (Status.CANCELLED, 5, 0)
    assert ran.engine.token_states == other.computed == 14
    ran.run()
    assert ran.ended(Status.COMPLETED) == [other.id]
