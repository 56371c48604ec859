"""vLLM's block pool as a backend, over counts of blocks set by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from backends.base import BackendError, Demand, KvLayout
from bench.vllm.pool import VllmPrefixPool

TOKEN_BYTES = 1024


@dataclass
class Counts:
    """A pool of 11 blocks, one of them the null block, with tables of who holds how many."""

    tables: dict[int, int] = field(default_factory=dict)
    shared: int = 0
    cached: int = 0
    found_tokens: int = 0
    usable: int = 10

    @property
    def free(self) -> int:
        return self.usable - sum(self.tables.values()) + self.shared

    def held_by(self, sequence: int) -> int:
        return self.tables[sequence]


def started(counts: Counts) -> VllmPrefixPool:
    pool = VllmPrefixPool(name="vllm_prefix")
    pool.blocks = counts
    pool.start(KvLayout(1, TOKEN_BYTES, 160, 11 * 16 * TOKEN_BYTES, "cpu"))
    return pool


def test_terms_are_read_from_vllm_and_add_up_to_the_budget() -> None:
    """Tables of 4 and 4 blocks that share 3; of the 5 free blocks 2 are cached."""
    counts = Counts({1: 4})
    pool = started(counts)
    assert pool.reserve(1, 55, 55, Demand(55, 10)) == (64, 0, 0, 0)
    counts.tables[2], counts.shared, counts.found_tokens, counts.cached = 4, 3, 48, 2
    assert pool.reserve(2, 53, 53, Demand(53, 10)) == (64, 0, 0, 48)
    usage, block = pool.usage(), 16 * TOKEN_BYTES
    assert usage == (5 * block, 1 * block, 2 * block, 3 * block, 3 * block)
    assert usage.held + usage.rounding + usage.cached + usage.free == 11 * block
    pool.check_integrity()


def test_what_is_given_back_is_out_of_the_books() -> None:
    counts = Counts({1: 4})
    pool = started(counts)
    pool.reserve(1, 55, 55, Demand(55, 10))
    counts.tables[1] = 5
    assert pool.extend(1, 65) == (80, 0, 0, 0)
    del counts.tables[1]
    pool.free(1)
    assert pool.usage().held == pool.usage().shared == 0


def test_a_refusal_wants_what_nobody_holds() -> None:
    """100 tokens take 7 blocks: 5 beyond 2 that are held, 4 beyond 3 that others hold."""
    counts = Counts({1: 2})
    pool = started(counts)
    pool.reserve(1, 20, 20, Demand(20, 90))
    pool.refuse(1, 100)
    assert pool.refusal.nbytes == 5 * 16 * TOKEN_BYTES
    pool.refuse(2, 100, shared=3)
    assert pool.refusal.nbytes == 4 * 16 * TOKEN_BYTES


def test_a_request_fits_that_an_empty_pool_could_hold() -> None:
    """161 tokens have K and V at most of 160 slots' worth: the last one is never read."""
    pool = started(Counts())
    assert pool.fits(Demand(100, 61))
    assert not pool.fits(Demand(100, 62))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"block_size": 24}, r"block_size=24: .* multiple of 16 tokens"),
        ({"block_size": 0}, r"block_size=0 is out of range"),
        ({"watermark": 1.5}, r"watermark=1\.5 is out of range"),
    ],
)
def test_what_vllm_would_die_of_is_refused(settings: dict[str, float], why: str) -> None:
    with pytest.raises(BackendError, match=why):
        VllmPrefixPool(name="vllm_prefix", **settings)  # type: ignore[arg-type]
