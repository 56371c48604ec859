"""Pages mapped on demand: how many, when, what they hold and which calls that takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.base import BackendError, Demand, Hold, KvLayout
from backends.vmm import Vmm
from tests.bench.engine.runs import run
from tests.virtual_gpu import run_on_virtual_gpu

MIB = 1 << 20
GIB = 1 << 30
LAYERS, TOKEN_BYTES = 32, 131_072  # Llama-3-8B: 2 x 32 planes of 8 x 128 x 2 = 2,048 bytes

# 2 planes of 32 KiB a token: a page holds 64 tokens of one or 32 of both; 32 MiB are 16 pages.
SMALL = KvLayout(1, 65_536, 512, 32 * MIB, "cpu")


def started(budget_bytes: int = GIB, **kwargs: Any) -> Vmm:
    backend = Vmm(**kwargs)
    backend.start(KvLayout(LAYERS, TOKEN_BYTES, 8192, budget_bytes, "cpu"))
    return backend


def job(name: str, **payload: Any) -> Any:
    return run_on_virtual_gpu(f"tests.backends.vmm_jobs:{name}", payload)


# A page of 2 MiB holds 2 MiB / 2,048 = 1,024 tokens of a plane, or 2 MiB / 131,072 = 16 tokens.
@pytest.mark.parametrize(
    ("layout", "tokens_a_page", "row_bytes"),
    [("layer", 1024, 128 * MIB), ("sequence", 16, 2 * MIB)],
)
def test_pages_come_as_tokens_do(layout: str, tokens_a_page: int, row_bytes: int) -> None:
    backend = started(layout=layout)
    assert backend.reserve(0, 1, 500, Demand(500, 2000)) == Hold(tokens_a_page)
    assert backend.usage() == (row_bytes, 0, 0, GIB - row_bytes, 0)
    assert backend.extend(0, tokens_a_page) == Hold(tokens_a_page)
    assert backend.extend(0, tokens_a_page + 1) == Hold(2 * tokens_a_page)
    assert backend.extend(0, 5 * tokens_a_page) == Hold(5 * tokens_a_page)
    assert backend.usage() == (5 * row_bytes, 0, 0, GIB - 5 * row_bytes, 0)
    backend.check_integrity()
    backend.free(0)
    assert backend.usage() == (0, 0, 0, GIB, 0)


def test_what_pages_have_beyond_whole_slots_is_rounding() -> None:
    """Llama-2-13B: 80 planes of 40 x 128 x 2 = 10,240 bytes. A page holds 204.8 tokens of one, two
    409.6; a row is 160 MiB, and 1 GiB is 6 of them and 64 MiB."""
    backend = Vmm()
    backend.start(KvLayout(40, 819_200, 1024, GIB, "cpu"))
    assert backend.reserve(0, 1, 1, Demand(100, 400)) == Hold(204)
    held = 204 * 819_200
    tail = 64 * MIB
    assert backend.usage() == (held, 160 * MIB - held + tail, 0, 5 * 160 * MIB, 0)
    assert backend.extend(0, 205) == Hold(409)
    held = 409 * 819_200
    assert backend.usage() == (held, 320 * MIB - held + tail, 0, 4 * 160 * MIB, 0)


def test_a_sequence_comes_in_only_where_all_of_its_branches_find_room() -> None:
    backend = started(GIB)  # 8 rows
    wide = Demand(3000, 50, branches=3)  # 3 rows a branch
    assert not backend.fits(wide)
    assert backend.reserve(0, 1000, 3000, wide) is None
    assert backend.usage().free == GIB
    assert backend.fits(wide._replace(branches=2))
    assert backend.reserve(0, 1000, 3000, wide._replace(branches=2)) == Hold(1024)
    assert not backend.fits(Demand(8000, 194))  # a token more than a range has addresses for
    assert backend.fits(Demand(8000, 193))


@pytest.mark.parametrize("reclaim", ["reuse", "unmap"])
def test_a_refusal_changes_nothing(reclaim: str) -> None:
    """8 rows of 64 tokens."""
    backend = Vmm(reclaim=reclaim)
    backend.start(SMALL)
    backend.reserve(0, 150, 150, Demand(150, 300, branches=2))
    backend.reserve(1, 256, 256, Demand(256, 1))
    before, shown = backend.usage(), [each.data_ptr() for each in backend.planes(0)]
    assert before.free == 2 * 2 * MIB
    assert backend.extend(0, 257) is None  # 5 rows where 3 are held and 1 is free
    assert backend.extend(0, 151, (0, 0)) is None  # 6
    assert backend.reserve(2, 1, 65, Demand(65, 1)) is None  # 2
    backend.check_integrity()
    assert backend.usage() == before
    assert [each.data_ptr() for each in backend.planes(0)] == shown
    assert backend.extend(0, 192) == Hold(192)
    backend.free(1)
    assert backend.extend(0, 193, (0, 0)) == Hold(2 * 256, 192 * SMALL.token_bytes, 2)
    backend.check_integrity()


def test_a_fork_is_a_full_copy_of_what_is_written() -> None:
    """4 layers are 8 planes of 2,048 bytes a token: a row is 16 MiB and holds 1,024 tokens."""
    backend, token_bytes = Vmm(), 8 * 2048
    backend.start(KvLayout(4, token_bytes, 8192, 256 * MIB, "cpu"))
    backend.reserve(0, 100, 100, Demand(100, 2000, branches=4))
    # Three more branches, each 8 buffers with 100 tokens; a row for all four.
    forked = backend.extend(0, 101, (0, 0, 0, 0))
    assert forked == Hold(4 * 1024, 3 * 100 * token_bytes, 3 * 8)
    # Branches 1 and 3 live on, each twice; branches that change places cost nothing.
    assert backend.extend(0, 102, (3, 1, 1, 3)) == Hold(4 * 1024, 2 * 101 * token_bytes, 2 * 8)
    assert backend.extend(0, 1025, (3, 2, 1, 0)) == Hold(4 * 2048)
    assert backend.usage().held == 8 * 16 * MIB
    assert backend.extend(0, 1026, (2,)) == Hold(2048)
    assert backend.usage().held == 2 * 16 * MIB
    backend.check_integrity()


def test_branches_that_stay_keep_their_place() -> None:
    backend = started(4 * GIB)
    backend.reserve(0, 10, 10, Demand(10, 10, branches=3))
    backend.extend(0, 11, (0, 0, 0))
    before = [backend.planes(0, branch)[0].data_ptr() for branch in range(3)]
    backend.extend(0, 12, (1, 1, 2))
    after = [backend.planes(0, branch)[0].data_ptr() for branch in range(3)]
    assert after == [before[1], before[0], before[2]]  # branch 0's range serves 1's second child


def test_a_new_sequence_takes_the_range_that_fits_best() -> None:
    backend = started(4 * GIB)  # 32 rows
    where: dict[int, int] = {}
    for rows in (1, 5, 3):
        backend.reserve(rows, rows * 1024, rows * 1024, Demand(8000, 1))
        where[rows] = backend.planes(rows)[0].data_ptr()
    for rows in where:
        backend.free(rows)

    def place(sequence: int, rows: int) -> int:
        backend.reserve(sequence, 1, rows * 1024, Demand(8000, 1))
        return backend.planes(sequence)[0].data_ptr()

    assert place(10, 2) == where[3]  # the shortest that has 2
    assert place(11, 8) == where[5]  # none has 8: the longest
    assert place(12, 8) == where[1]
    assert place(13, 1) not in where.values()
    backend.check_integrity()


def test_the_range_that_was_idle_longest_loses_its_pages_first() -> None:
    backend = Vmm()
    backend.start(SMALL)  # 8 rows of 64 tokens
    for sequence, tokens in enumerate((192, 192, 64)):
        backend.reserve(sequence, tokens, tokens, Demand(tokens, 200))
    second = backend.planes(1)[0].data_ptr()
    backend.free(0)
    backend.free(1)
    backend.extend(2, 192)  # 2 rows more, of which 1 is mapped nowhere
    backend.reserve(3, 1, 192, Demand(192, 1))
    assert backend.planes(3)[0].data_ptr() == second  # it still has 3 rows


class Mirror:
    """A sequence's branches as plain lists of bytes, a byte a token for each plane."""

    def __init__(self, backend: Vmm, sequence: int) -> None:
        self.backend, self.sequence = backend, sequence
        self.branches: list[list[int]] = [[]]

    def write(self, tokens: int, value: int) -> None:
        """Fills every branch up to `tokens` with a value of its own, in all planes."""
        for branch, tokens_of_it in enumerate(self.branches):
            start, own = len(tokens_of_it), (value + 10 * branch) % 256
            tokens_of_it += [own] * (tokens - start)
            for number, plane in enumerate(self._planes(branch)):
                plane[start:tokens] = (own + number) % 256

    def check(self) -> None:
        for branch, tokens in enumerate(self.branches):
            for number, plane in enumerate(self._planes(branch)):
                expected = [(value + number) % 256 for value in tokens]
                assert plane[: len(tokens)].tolist() == [[value] * 3 for value in expected]

    def _planes(self, branch: int) -> list[torch.Tensor]:
        """Three bytes of every token, the last one among them, by plane."""
        planes = self.backend.planes(self.sequence, branch)
        token_bytes = SMALL.token_bytes // len(planes)
        return [plane.view(-1, token_bytes)[:, 1 :: token_bytes // 2 - 1] for plane in planes]


moves = st.lists(
    st.tuples(
        st.integers(0, 1),  # which sequence
        st.sampled_from(["grow", "fork", "again"]),
        st.integers(1, 70),
        st.lists(st.integers(0, 2), min_size=1, max_size=3),
    ),
    max_size=12,
)


@pytest.mark.parametrize("layout", ["layer", "sequence"])
@pytest.mark.parametrize("reclaim", ["reuse", "unmap"])
def test_every_branch_reads_what_was_written_to_it(layout: str, reclaim: str) -> None:
    @settings(max_examples=40, deadline=None, database=None)
    @given(moves=moves)
    def life(moves: list[tuple[int, str, int, list[int]]]) -> None:
        backend = Vmm(layout=layout, reclaim=reclaim)
        backend.start(SMALL)
        mirrors: dict[int, Mirror] = {}
        for number, (which, action, tokens, parents) in enumerate(moves):
            mirror = mirrors.get(which)
            if mirror is None or action == "again":
                if mirror is not None:
                    backend.free(which)
                    del mirrors[which]
                if backend.reserve(which, tokens, tokens, Demand(512, 1)) is not None:
                    mirrors[which] = Mirror(backend, which)
                    mirrors[which].write(tokens, number)
            else:
                written = len(mirror.branches[0])
                children = [each % len(mirror.branches) for each in parents]
                tokens = min(256, written + (tokens if action == "grow" else 1))
                chosen = children if action == "fork" else None
                if backend.extend(which, tokens, chosen) is not None:
                    if chosen is not None:
                        mirror.branches = [list(mirror.branches[each]) for each in chosen]
                    mirror.write(tokens, number)
            backend.check_integrity()
            for each in mirrors.values():
                each.check()

    life()


@pytest.mark.parametrize(
    ("layout", "planes", "tokens_a_page", "copy"),
    [("layer", 64, 1024, "kernel_launch"), ("sequence", 1, 16, "copy")],
)
def test_an_ended_sequences_pages_stay_mapped_for_the_next(
    layout: str, planes: int, tokens_a_page: int, copy: str
) -> None:
    """Access is granted a plane at a time, for one page as for two; one launch copies all."""
    found = job(
        "two_lives",
        settings={"layout": layout, "reclaim": "reuse"},
        tokens_a_page=tokens_a_page,
    )
    assert found["held"] == 2 * planes * 2 * MIB
    assert found["moves"] == 0
    assert found["calls"] == {
        "first token": {"cuMemAddressReserve": 1, "cuMemMap": planes, "cuMemSetAccess": planes},
        "to the page's end": {},
        "beyond it": {"cuMemMap": planes, "cuMemSetAccess": planes},
        "fork": {
            "cuMemAddressReserve": 1,
            "cuMemMap": 2 * planes,
            "cuMemSetAccess": planes,
            copy: 1,
        },
        "end": {},
        "the next one": {},
    }


def test_with_unmap_every_sequence_maps_its_own_pages() -> None:
    found = job("two_lives", settings={"layout": "layer", "reclaim": "unmap"}, tokens_a_page=1024)[
        "calls"
    ]
    # Both branches' 2 x 64 pages, with one wait for each branch; addresses are kept.
    assert found["end"] == {"cuMemUnmap": 256, "stream_synchronize": 2}
    assert found["the next one"] == {"cuMemMap": 128, "cuMemSetAccess": 64}


def test_pages_of_idle_ranges_are_taken_when_no_others_are_left() -> None:
    found = job("pages_are_stolen")
    assert found["free_rows"] == 7  # of 8: 3 in the sequence's own range, 4 in an idle one
    assert found["calls"] == {
        "a shorter one": {},
        "grows to 4 rows": {},
        "grows to 6": {
            "cuMemUnmap": 128,
            "stream_synchronize": 1,
            "cuMemMap": 128,
            "cuMemSetAccess": 64,
        },
        "another one of 2": {},
    }
    assert found["refused"]


def test_pages_that_a_running_sequence_does_not_need_yet_are_free_too() -> None:
    found = job("spare_pages_of_the_living")
    assert found["granted"]
    # 2 rows are mapped nowhere and 2 of the range's 5 spare ones are taken; 3 are left to it.
    assert found["calls"]["4 rows"] == {
        "cuMemAddressReserve": 1,
        "cuMemUnmap": 128,
        "stream_synchronize": 1,
        "cuMemMap": 256,
        "cuMemSetAccess": 64,
    }
    assert found["grown"]
    assert found["calls"]["to 4 rows"] == {}
    assert not found["one_more"]


def test_pages_of_idle_ranges_go_before_those_of_the_living() -> None:
    assert job("idle_before_the_living") == {
        "lacks a row": {
            "cuMemUnmap": 64,
            "stream_synchronize": 1,
            "cuMemMap": 128,
            "cuMemSetAccess": 64,
        },
        "grows into its own": {},
    }


@pytest.mark.parametrize("reclaim", ["reuse", "unmap"])
def test_a_run_pays_for_every_driver_call(tmp_path: Path, reclaim: str) -> None:
    """Microseconds a call of conf/costs/default.yaml; cudaMalloc drains the device, for 10."""
    run_ = run(
        tmp_path / "run", "backend=vmm", f"backend.reclaim={reclaim}", "workload=sharegpt",
        "workload.rate_rps=8", "workload.num_requests=80", "kv_budget=4GiB", "seed=3",
    )  # fmt: skip
    assert run_.summary["requests"]["completed"] == 80
    calls = run_.summary["allocator"]["driver_calls"]
    left = calls["cuMemMap"] - calls["cuMemUnmap"]  # of 4 GiB = 2,048 pages
    assert 0 < left <= 2048 if reclaim == "reuse" else left == 0
    call_us = {
        "cuMemAddressReserve": 2, "cuMemMap": 2, "cuMemUnmap": 34, "cuMemSetAccess": 38,
        "stream_synchronize": 10, "cudaMalloc": 110,
    }  # fmt: skip
    made_us = sum(number * call_us[kind] for kind, number in calls.items())
    last = run_.requests.sort_values("end_s").iloc[-1]
    rows = -(-(last["prompt_tokens"] + last["output_tokens"] - 1) // 1024)
    after_us = 0 if reclaim == "reuse" else 10 + rows * 64 * 34  # no step comes after its end
    assert run_.summary["driver_s"] == pytest.approx((made_us - after_us) * 1e-6, rel=1e-9)


def test_the_gpus_memory_is_given_back_when_the_backend_dies() -> None:
    assert job("life_and_death") == {
        "taken": 512,  # 1 GiB of pages, all at the start
        "mapping_takes": 0,
        "allocated": 0,
        "planes": 64,
        "plane_bytes": 3 * 2 * MIB // 3,
        "on_gpu": True,
        "stride": 8192 * 2048,
        "kept_by_a_view": True,
        "left": 0,
    }


def test_what_the_card_cannot_give_is_said() -> None:
    found = job("too_large")
    free = found["free_pages"]
    wanted = (free + 512) // 64 * 64  # 1 GiB more than there is, in whole rows
    assert found["too_many"] == (
        f"the KV budget is {wanted} pages of 2 MiB and the GPU has room for {free}: lower "
        "kv_budget or utilization"
    )
    assert "pages of 2097152 bytes and backend vmm is made for 65536" in found["granularity"]
    assert found["left"] == 0


def test_a_budget_for_less_than_one_sequence_is_refused() -> None:
    """8,192 tokens are 8 pages in each of 64 planes: 512 pages. 1 GiB less a byte holds 7 x 64."""
    with pytest.raises(
        BackendError, match=r"holds 448 pages of 2 MiB and one sequence .* needs 512"
    ):
        started(GIB - 1)
    started(GIB)


@pytest.mark.parametrize("setting", ["layout", "reclaim"])
def test_an_unknown_setting_is_named(setting: str) -> None:
    with pytest.raises(BackendError, match=rf"backend\.{setting}='never' is not known: choose one"):
        Vmm(**{setting: "never"})
