"""Blocks of 16 tokens: how many a length takes, and in which order they are given out (vLLM v1)."""

from __future__ import annotations

import pytest

from backends.base import BackendError, Demand, Hold, KvLayout
from backends.block_pool import BlockPool
from backends.paged import Paged

BUDGET = 2 << 20
TOKEN_BYTES = 11_914  # 2 MiB // (16 x 11,914) is 11 blocks, one of which is the null block
ANY = Demand(1, 1)


def started(**settings: float) -> Paged:
    backend = Paged(**settings)  # type: ignore[arg-type]
    backend.start(KvLayout(1, TOKEN_BYTES, 160, BUDGET, "cpu"))
    return backend


def all_blocks(backend: Paged) -> list[int]:
    """The order in which the free blocks come out."""
    free = backend.usage().free // (16 * TOKEN_BYTES)
    assert backend.reserve(99, free * 16, free * 16, ANY) is not None
    return backend.block_table(99)


def test_a_sequence_of_55_tokens_takes_four_blocks_and_never_the_null_block() -> None:
    backend = started()
    assert backend.reserve(0, 55, 55, ANY) == Hold(slots=64)
    assert backend.block_table(0) == [1, 2, 3, 4]
    assert all_blocks(backend) == [5, 6, 7, 8, 9, 10]
    assert backend.usage().free == 0
    backend.check_integrity()


def test_blocks_come_back_last_one_first_behind_those_that_were_free() -> None:
    backend = started()
    backend.reserve(0, 55, 55, ANY)  # 1 2 3 4
    backend.reserve(1, 53, 53, ANY)  # 5 6 7 8
    backend.free(0)
    backend.free(1)
    assert all_blocks(backend) == [9, 10, 4, 3, 2, 1, 8, 7, 6, 5]


def test_a_block_is_added_when_the_last_one_is_full() -> None:
    backend = started()
    backend.reserve(0, 16, 16, ANY)
    assert backend.extend(0, 16) == Hold(16)
    assert backend.extend(0, 17) == Hold(32)
    assert backend.extend(0, 81) == Hold(96)
    assert backend.block_table(0) == [1, 2, 3, 4, 5, 6]


def test_room_is_asked_for_but_only_tokens_are_given() -> None:
    backend = started()
    assert backend.reserve(0, 32, 160, ANY) == Hold(32)
    assert backend.reserve(1, 32, 129, ANY) is None, "9 blocks of the 8 that are left"
    assert backend.reserve(1, 32, 128, ANY) == Hold(32)


def test_a_refused_extension_changes_nothing() -> None:
    backend = started()
    backend.reserve(0, 100, 100, ANY)
    backend.reserve(1, 48, 48, ANY)
    before = backend.usage()
    assert backend.extend(1, 49) is None
    assert backend.usage() == before
    assert backend.block_table(1) == [8, 9, 10]


def test_the_pool_is_the_budget_but_for_its_remainder_and_the_null_block() -> None:
    usage = started().usage()
    assert usage.free == 10 * 16 * TOKEN_BYTES
    assert usage.rounding == BUDGET - 10 * 16 * TOKEN_BYTES
    assert (usage.held, usage.cached) == (0, 0)


def test_a_block_cannot_be_freed_twice() -> None:
    pool = BlockPool(4)
    block_ids = pool.take(2)
    pool.give_back(block_ids)
    with pytest.raises(AssertionError, match="block 2 is freed twice"):
        pool.give_back(block_ids)


@pytest.mark.parametrize("tables", [[[1, 2], [2]], [[1]], [[1, 3]]])
def test_wrong_tables_are_noticed(tables: list[list[int]]) -> None:
    pool = BlockPool(4)
    pool.take(2)
    pool.check_integrity([[1], [2]])
    with pytest.raises(AssertionError, match="reference counts and tables differ"):
        pool.check_integrity(tables)


def test_a_budget_below_one_sequence_says_what_to_change() -> None:
    with pytest.raises(BackendError) as error:
        Paged().start(KvLayout(1, TOKEN_BYTES, 161, BUDGET, "cpu"))
    assert str(error.value) == (
        "the KV budget of 0.00 GiB holds 11 blocks of 16 tokens and one sequence of "
        "max_model_len=161 needs 12 with the null block: raise kv_budget or utilization, or lower "
        "max_model_len"
    )


@pytest.mark.parametrize("block_size", [0, -1, 1.5, True, "16"])
def test_a_block_size_that_cannot_be_is_refused(block_size: object) -> None:
    with pytest.raises(BackendError, match=r"backend\.block_size=.*whole number of tokens from 1"):
        Paged(block_size=block_size)  # type: ignore[arg-type]


@pytest.mark.parametrize("watermark", [-0.1, 1.0, True, "0.1"])
def test_a_watermark_that_cannot_be_is_refused(watermark: object) -> None:
    with pytest.raises(BackendError, match=r"backend\.watermark=.*from 0 up to 1"):
        Paged(watermark=watermark)  # type: ignore[arg-type]


def forked(tokens: int, parents: tuple[int, ...] = (0, 0)) -> Paged:
    """One sequence of `tokens` tokens, forked and each branch given room for one more."""
    backend = started()
    demand = Demand(tokens, 20, branches=len(parents))
    assert backend.reserve(0, tokens, tokens, demand) is not None
    assert backend.extend(0, tokens + 1, parents) is not None
    return backend


def tables(backend: Paged, branches: int = 2) -> list[list[int]]:
    return [backend.block_table(0, branch) for branch in range(branches)]


def test_a_fork_copies_the_last_block_alone_and_only_if_it_is_partial() -> None:
    backend = started()
    backend.reserve(0, 40, 40, Demand(40, 20, branches=2))  # 1 2 3
    copied = 16 * TOKEN_BYTES
    assert backend.extend(0, 41, (0, 0)) == Hold(2 * 48, copied_bytes=copied, copies=1)
    assert tables(backend) == [[1, 2, 4], [1, 2, 3]]
    assert tables(forked(32)) == [[1, 2, 3], [1, 2, 4]]


def test_blocks_that_branches_share_are_counted_once_and_told_apart() -> None:
    usage = forked(40).usage()
    block = 16 * TOKEN_BYTES
    assert (usage.held, usage.shared, usage.free) == (4 * block, 2 * block, 6 * block)


def test_a_beam_that_is_dropped_gives_back_what_was_its_own() -> None:
    backend = forked(40, (0, 0, 0))
    assert tables(backend, 3) == [[1, 2, 4], [1, 2, 5], [1, 2, 3]]
    backend.extend(0, 42, (1, 1, 1))  # the tables of 0 and 2 are gone, their blocks used anew
    first, second, third = tables(backend, 3)
    assert first[:2] == second[:2] == third[:2] == [1, 2]
    assert len({first[2], second[2], third[2]}) == 3
    assert 5 in (first[2], second[2], third[2])
    assert backend.usage().held == 5 * 16 * TOKEN_BYTES
    backend.check_integrity()


def test_a_refused_fork_changes_nothing() -> None:
    backend = forked(40)  # 4 of 10 blocks
    backend.reserve(1, 80, 80, ANY)  # 5 more
    before, usage = tables(backend), backend.usage()
    assert backend.extend(0, 49, (1, 1)) is None, "two blocks, a copy, and one comes back"
    assert (tables(backend), backend.usage()) == (before, usage)
    backend.check_integrity()
    assert backend.extend(0, 48, (1, 1)) is not None, "a copy of the last block, and one comes back"


def test_freeing_a_forked_sequence_frees_every_block_once() -> None:
    backend = forked(40, (0, 0, 0))
    backend.free(0)
    assert backend.usage().free == 10 * 16 * TOKEN_BYTES
    backend.check_integrity()


def test_room_for_branches_counts_the_prompts_full_blocks_once() -> None:
    backend = started()  # 10 blocks; the final 81 tokens take 2 + 2 x 4
    assert backend.fits(Demand(32, 50, branches=2))
    assert not backend.fits(Demand(31, 51, branches=2))
    assert not backend.fits(Demand(32, 50, branches=3))
