"""The check of the kernels, run in Triton's interpreter: what passes, and what must not."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any

import pytest
import torch
from torch import Tensor

from backends.kernels import torch_paged
from backends.kernels.base import KvCache, PagedBatch
from bench.gpu_check.card import Device
from bench.gpu_check.kernel_cases import BLOCK_SIZES, DTYPES, HEADS, Case
from bench.gpu_check.kernel_errors import attention_error, store_differences
from bench.gpu_check.kernels import judge
from bench.gpu_check.processes import Jobs
from tests.backends.kernels.interpreter import interpreting_process
from tests.bench.gpu_check.kernel_jobs import check_variants, describe_variants

CASE = Case((15, 16, 17, 40), (1, 1, 1, 1))


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Executor]:
    with interpreting_process() as process:
        yield process


def test_all_sizes_and_dtypes_are_checked(interpreter: Executor) -> None:
    found = interpreter.submit(describe_variants).result()
    assert {block_size for block_size, *_ in found} == set(BLOCK_SIZES)
    assert {(dtype, cache) for *_, dtype, cache in found} == {
        (str(a), str(b)) for a, b in DTYPES
    }  # fmt: skip
    assert {heads for _, heads, *_ in found} > set(HEADS)


@pytest.mark.parametrize(
    "numbers", [(0, 7), *(pytest.param(n, marks=pytest.mark.long) for n in ((13, 19), (30, 32)))]
)
def test_the_kernels_pass(interpreter: Executor, numbers: tuple[int, ...]) -> None:
    rows = interpreter.submit(check_variants, numbers).result()
    assert len(rows) == 5 * len(numbers)
    verdict = judge(rows, [])
    assert verdict.passed, verdict.figures
    assert verdict.figures.startswith(f"{len(rows)} of {len(rows)} checks passed; worst error")


def test_what_a_kernel_raises_is_its_row(interpreter: Executor) -> None:
    """The next is checked all the same."""
    rows = interpreter.submit(check_variants, (0,), "no_such_device").result()
    assert [row["passed"] for row in rows] == [False] * 5
    assert all("RuntimeError" in row["note"] for row in rows)


def test_a_gpu_whose_kernels_do_nothing_fails(twin: Device) -> None:
    """Compiled and launched as on a card: the virtual GPU's memory reads as zeros."""
    payload = {"worker": 3, "of": 34, "device": "cuda"}
    with Jobs(twin, 300, print) as jobs:
        rows = jobs.run("bench.gpu_check.kernel_job:check_kernels", payload)
    assert [row["error"] for row in rows] == [1.0, 1.0, 1.0, 1.0, None]
    assert not any(row["passed"] for row in rows)
    assert rows[-1]["note"] == "keys and values differ in some bit"


def reads(tokens: int) -> Any:
    """Decode attention that reads so many tokens more than a sequence has."""

    def attention(
        q: Tensor, cache: KvCache, batch: PagedBatch, scale: float, *, out: Tensor
    ) -> Tensor:
        other = batch._replace(context_lens=batch.context_lens + tokens)
        return torch_paged.paged_decode(q, cache, other, scale, out=out)

    return attention


def test_a_read_beyond_or_short_of_the_length_shows() -> None:
    assert attention_error(reads(0), CASE) <= CASE.tolerance
    assert attention_error(reads(-1), CASE) > 100 * CASE.tolerance
    beyond = attention_error(reads(1), CASE)
    assert beyond != beyond


def test_a_slot_that_is_not_written_shows() -> None:
    def store(k: Tensor, v: Tensor, cache: KvCache, slots: Tensor) -> None:
        torch_paged.store_kv(k, v, cache, torch.where(slots == slots.max(), -1, slots))

    assert store_differences(torch_paged.store_kv, CASE) == []
    assert store_differences(store, CASE) == ["keys", "values"]


def row(**changes: Any) -> dict[str, Any]:
    plain = {"kernel": "decode", "case": "block16", "error": 1e-6, "tolerance": 1e-5}
    return {**plain, "note": "", "passed": True, **changes}


def test_the_verdict_names_the_worst_and_what_failed() -> None:
    worst = row(case="block8", error=9e-6)
    assert judge([row(), worst], []).figures == (
        "2 of 2 checks passed; worst error 9e-06 of 1e-05 allowed (decode, block8)"
    )
    wrong = row(error=None, note="NaN: it read what it must not", passed=False)
    verdict = judge([row(), wrong], ["killed by SIGKILL"])
    assert not verdict.passed
    assert "first that failed: decode, block16: NaN" in verdict.figures
    assert verdict.figures.endswith("a process gave no result: killed by SIGKILL")
    assert not judge([row()], ["it hung"]).passed
    assert not judge([], []).passed
