"""Samples and beams by hand: ten blocks of 16 tokens in host memory, unless said otherwise."""

from __future__ import annotations

from itertools import repeat
from typing import Any

import pytest

from backends.base import Backend, KvLayout
from backends.contiguous import Contiguous
from backends.paged import Paged
from backends.paged_prefix import PagedPrefix
from bench.metrics.status import Status
from bench.metrics.summary import sharing
from tests.bench.engine.lab import Lab, limits

BUDGET = 2 << 20
TOKEN_BYTES = 11_914  # 2 MiB // (16 x 11,914) is 11 blocks, one of which is the null block
MAX_MODEL_LEN = 160


def lab_of(backend: Backend, **changes: Any) -> Lab:
    backend.start(KvLayout(1, TOKEN_BYTES, MAX_MODEL_LEN, BUDGET, "cpu"))
    return Lab(backend, BUDGET, TOKEN_BYTES, limits(**changes), max_model_len=MAX_MODEL_LEN)


def test_a_prompt_is_computed_once_and_each_sample_decodes() -> None:
    lab = lab_of(Paged())
    sequence = lab.add(40, 4, branches=3)
    lab.run()
    assert [step.tokens for step in lab.steps] == [40, 3, 3, 3]
    assert lab.engine.output_tokens == 3 * 4
    assert (sequence.generated, sequence.known, sequence.computed) == (4, 44, 43)
    assert lab.ended(Status.COMPLETED) == [0]


def test_samples_share_full_prompt_blocks_and_copy_the_last_one() -> None:
    backend = Paged()
    lab = lab_of(backend)
    sequence = lab.add(40, 4, branches=3)  # 2 full blocks and 8 tokens of a third
    lab.step()
    assert backend.block_table(0) == [1, 2, 3]
    lab.step()
    assert [backend.block_table(0, branch) for branch in range(3)] == [
        [1, 2, 4], [1, 2, 5], [1, 2, 3],
    ]  # fmt: skip
    usage = backend.usage()
    assert usage.shared == 2 * 2 * 16 * TOKEN_BYTES  # two blocks, each for two more tables
    assert sequence.slots == 3 * 3 * 16
    assert lab.engine.token_states == 32 + 3 * 9  # 32 shared, 8 of the prompt and 1 new in each


def test_what_sharing_saves_is_the_part_of_all_entries_that_are_shared() -> None:
    """One step with a block of its own, then two steps in which 4 of 9 table entries are shared;
    the prompt's step has nothing to share."""
    lab = lab_of(Paged())
    lab.add(40, 3, branches=3)
    lab.run()
    alone, *together = [step.end_s - step.start_s for step in lab.steps]
    expected = 4 * sum(together) / (3 * alone + 9 * sum(together))
    assert sharing(lab.engine.account)["saved"] == pytest.approx(expected)


def test_contiguous_buffers_share_nothing() -> None:
    lab = lab_of(Contiguous(reserve="oracle", layout="sequence"))
    sequence = lab.add(40, 4, branches=3)
    lab.step()
    assert sequence.slots == 3 * 43, "a buffer for each sample, from the start"
    lab.run()
    assert sharing(lab.engine.account)["saved"] == 0


def test_a_request_takes_as_many_seats_as_it_has_branches() -> None:
    lab = lab_of(Paged(), max_num_seqs=4)
    lab.add(16, 4, branches=3)
    lab.add(16, 4, branches=2)
    lab.add(16, 4, branches=5)
    lab.step()
    assert lab.running == [0]
    lab.run()
    assert lab.ended(Status.COMPLETED) == [0, 1]
    (end,) = [end for end in lab.ends if end.status is Status.REJECTED]
    assert end.cause == "5 branches exceed max_num_seqs=4"


def test_one_that_can_never_hold_its_branches_is_rejected() -> None:
    lab = lab_of(Paged())
    lab.add(32, 50, branches=2)  # 81 tokens: 2 blocks shared, 2 x 4 of their own
    lab.add(32, 50, branches=3)  # 2 + 3 x 4
    lab.run()
    assert lab.ended(Status.COMPLETED) == [0]
    assert lab.ended(Status.REJECTED) == [1]


def test_a_preempted_request_computes_its_prompt_once_more_and_each_branch_its_own() -> None:
    lab = lab_of(Paged())
    first = lab.add(48, 80, branches=1)  # grows to 8 blocks
    second = lab.add(40, 40, branches=2)
    while not second.preemptions:
        lab.step()
    assert (second.branches, second.computed, second.slots) == (1, 0, 0)
    known = second.known
    steps = len(lab.steps)
    lab.run()
    assert first.preemptions == 0
    again = [step.tokens for step in lab.steps[steps:]]
    alone = again.index(40) if 40 in again else again.index(41)
    assert again[alone + 1] in (2 * (known - 40), 2 * (known - 40) + 1)
    assert second.generated == 40
    assert lab.engine.output_tokens == 80 + 2 * 40


def test_beams_that_come_from_one_share_all_but_what_they_write() -> None:
    """Every survivor goes on from beam 0: the other beam's own blocks come back at every step."""
    backend = Paged()
    lab = lab_of(backend)
    lab.add(40, 40, branches=2, survivors=lambda: repeat((0, 0)))
    lab.step()
    for _ in range(8):
        lab.step()
        tables = [backend.block_table(0, branch) for branch in range(2)]
        assert tables[0][:2] == tables[1][:2]
        assert tables[0][2] != tables[1][2]
    lab.step()  # the 49th token begins a block: what came before it is full, and shared
    tables = [backend.block_table(0, branch) for branch in range(2)]
    assert tables[0][:3] == tables[1][:3]
    assert tables[0][3] != tables[1][3]
    lab.run()
    assert backend.usage().free == 10 * 16 * TOKEN_BYTES


def test_beam_copies_take_time() -> None:
    times = []
    for survivors in ((0, 0), (0, 1)):
        lab = lab_of(Contiguous(reserve="oracle", layout="sequence"))
        lab.add(40, 20, branches=2, survivors=lambda chosen=survivors: repeat(chosen))
        lab.run()
        times.append(lab.now)
    assert times[0] > times[1]


def test_the_prompt_of_samples_is_found_again_and_nothing_else() -> None:
    backend = PagedPrefix()
    lab = lab_of(backend)
    lab.add(48, 30, branches=2)
    lab.run()
    assert backend.usage().cached == 3 * 16 * TOKEN_BYTES
    backend.check_integrity()


@pytest.mark.parametrize("leaves_after", [1, 3])
def test_a_client_that_leaves_frees_all_branches(leaves_after: int) -> None:
    backend = Paged()
    lab = lab_of(backend)
    sequence = lab.add(40, 20, branches=3)
    for _ in range(leaves_after):
        lab.step()
    lab.engine.cancel(sequence, lab.now)
    assert backend.usage().free == 10 * 16 * TOKEN_BYTES
    backend.check_integrity()
