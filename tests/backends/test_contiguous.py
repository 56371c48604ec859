"""How long a sequence's buffer is under each policy, and what moving it copies."""

from __future__ import annotations

import pytest

from backends.base import Backend, BackendError, Demand, Hold, KvLayout
from backends.bucketed import Bucketed
from backends.contiguous import Contiguous

TOKEN_BYTES = 4096  # a page, in which host memory is counted
ANY = Demand(1, 1)


def started(backend: Backend, max_model_len: int = 512, slots: int = 2048) -> Backend:
    backend.start(KvLayout(1, TOKEN_BYTES, max_model_len, slots * TOKEN_BYTES, "cpu"))
    return backend


@pytest.mark.parametrize(
    ("policy", "demand", "slots"),
    [
        ("max", Demand(100, 40), 512),
        ("pow2", Demand(100, 40), 100 + 64),
        ("pow2", Demand(100, 64), 100 + 64),
        ("pow2", Demand(100, 65), 100 + 128),
        ("pow2", Demand(100, 1), 100 + 1),
        ("pow2", Demand(100, 400), 512),  # never above max_model_len
        ("oracle", Demand(100, 40), 139),  # the last token is never read again
        ("oracle", Demand(100, 1), 100),
        ("grow", Demand(100, 40), 100),
    ],
)
def test_slots_reserved_for_a_prompt(policy: str, demand: Demand, slots: int) -> None:
    backend = started(Contiguous(reserve=policy, layout="sequence"))
    assert backend.reserve(0, 100, 100, demand) == Hold(slots)
    assert backend.usage().held == slots * TOKEN_BYTES


def test_a_buffer_is_reserved_with_room_for_all_that_is_asked() -> None:
    backend = started(Contiguous(reserve="grow", layout="sequence"))
    assert backend.reserve(0, 32, 100, ANY) == Hold(100), "a buffer cannot grow where it is"


def test_growing_copies_all_that_is_there() -> None:
    backend = started(Contiguous(reserve="grow", layout="sequence"))
    backend.reserve(0, 100, 100, Demand(100, 40))
    assert backend.extend(0, 101) == Hold(101, 100 * TOKEN_BYTES, copies=1)
    assert backend.extend(0, 110) == Hold(110, 101 * TOKEN_BYTES, copies=1)
    assert backend.usage().held == 110 * TOKEN_BYTES


def test_growing_needs_room_for_both_buffers() -> None:
    backend = started(Contiguous(reserve="grow", layout="sequence"), max_model_len=100, slots=100)
    backend.reserve(0, 50, 50, ANY)
    before = backend.usage()
    assert backend.extend(0, 51) is None  # 50 + 51 > 100
    assert backend.usage() == before
    backend.check_integrity()


def test_a_full_bucket_moves_whole_however_it_filled() -> None:
    """The engine asks again only when the bucket is full: 28 decoded tokens go along."""
    backend = started(Bucketed(layout="sequence"))
    assert backend.reserve(0, 100, 100, Demand(100, 400)) == Hold(128)
    assert backend.extend(0, 129) == Hold(256, 128 * TOKEN_BYTES, copies=1)
    assert backend.extend(0, 257) == Hold(512, 256 * TOKEN_BYTES, copies=1)
    assert backend.extend(0, 512) == Hold(512)


@pytest.mark.parametrize(
    ("buckets", "max_model_len", "slots"),
    [
        (None, 512, {1: 128, 128: 128, 129: 256, 257: 512}),
        (None, 300, {1: 128, 200: 256, 257: 300}),
        (None, 100, {1: 100}),
        ([48, 100, 333], 512, {1: 48, 49: 100, 101: 333, 334: 512}),
        ([48, 1000], 512, {1: 48, 49: 512}),
    ],
)
def test_buckets(buckets: list[int] | None, max_model_len: int, slots: dict[int, int]) -> None:
    backend = started(Bucketed(buckets=buckets, layout="sequence"), max_model_len)
    held = {}
    for tokens in slots:
        hold = backend.reserve(0, tokens, tokens, ANY)
        assert hold is not None
        held[tokens] = hold.slots
        backend.free(0)
    assert held == slots


def test_layers_have_a_k_and_a_v_buffer_each() -> None:
    backend = Contiguous(reserve="grow")
    backend.start(KvLayout(2, 4 * 1024, 64, 1 << 20, "cpu"))
    backend.reserve(0, 3, 3, ANY)
    # 4 buffers of 3 x 1 KiB, each a page
    usage = backend.usage()
    assert (usage.held, usage.rounding) == (4 * 3072, 4 * 1024)


def test_moves_counts_every_try_that_can_move_memory() -> None:
    backend = started(Bucketed(layout="sequence"), slots=600)
    backend.reserve(0, 100, 100, ANY)
    assert backend.moves == 1
    backend.extend(0, 120)  # it fits
    assert backend.moves == 1
    backend.extend(0, 130)
    assert backend.moves == 3, "a new buffer, and the old one given back"
    assert backend.reserve(1, 300, 300, ANY) is None
    assert backend.moves > 3, "a refusal can make the allocator give back what it kept"
    before = backend.moves
    backend.free(0)
    assert backend.moves == before + 1


@pytest.mark.parametrize("arena", ["torch", "buddy"])
def test_a_budget_below_one_sequence_says_what_to_change(arena: str) -> None:
    with pytest.raises(BackendError) as error:
        started(Contiguous(arena=arena), max_model_len=512, slots=511)
    assert str(error.value) == (
        "the KV budget of 0.00 GiB cannot hold one sequence of max_model_len=512 (0.00 GiB) in "
        "backend contiguous: raise kv_budget or utilization, or lower max_model_len"
    )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"reserve": "most"}, "backend.reserve='most' is not known: choose one of max, pow2, "),
        ({"arena": None}, "backend.arena=None is not known: choose one of torch, buddy"),
        ({"layout": 1}, "backend.layout=1 is not known: choose one of layer, sequence"),
    ],
)
def test_unknown_choices_are_refused(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(BackendError) as error:
        Contiguous(**settings)
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize("buckets", [[], "128", 128, [0, 128], [128, 128], [256, 128], [1.5]])
def test_buckets_that_cannot_be_are_refused(buckets: object) -> None:
    with pytest.raises(BackendError, match=r"backend\.buckets="):
        Bucketed(buckets=buckets)  # type: ignore[arg-type]


def test_branches_have_buffers_from_the_start_and_a_fork_copies_what_is_written() -> None:
    backend = started(Contiguous(layout="sequence"), slots=600, max_model_len=100)
    demand = Demand(30, 20, branches=3)
    assert backend.reserve(0, 30, 30, demand) == Hold(3 * 100)
    assert backend.extend(0, 31, (0, 0, 0)) == Hold(300, 2 * 30 * TOKEN_BYTES, copies=2)
    assert backend.extend(0, 32) == Hold(300)
    assert backend.extend(0, 33, (0, 2, 2)) == Hold(300, 32 * TOKEN_BYTES, copies=1)
    assert backend.extend(0, 34, (2, 1, 0)) == Hold(300), "names change, not memory"
    backend.check_integrity()
    backend.free(0)
    assert backend.usage().held == 0


def test_branches_that_outgrow_their_buckets_are_copied_straight_to_longer_ones() -> None:
    backend = started(Bucketed(layout="sequence"), slots=800)
    backend.reserve(0, 128, 128, Demand(128, 20, branches=2))
    assert backend.extend(0, 129, (0, 0)) == Hold(2 * 256, 2 * 128 * TOKEN_BYTES, copies=2)


def test_a_group_that_does_not_fit_takes_nothing() -> None:
    backend = started(Contiguous(layout="sequence"), slots=250, max_model_len=100)
    assert backend.reserve(0, 30, 30, Demand(30, 20, branches=3)) is None
    assert backend.usage().held == 0
    assert not backend.fits(Demand(30, 20, branches=3))
    assert backend.fits(Demand(30, 20, branches=2))
