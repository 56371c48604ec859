"""Nothing is timed before it agrees, and one failure does not take the others along."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bench.errors import SettingError
from bench.kernels.measure import measured, require_gpu
from bench.kernels.problem import Problem
from bench.kernels.providers import sdpa
from bench.kernels.providers.base import Decode, Unsupported
from bench.kernels.rows import Row
from bench.kernels.shape import Shape
from bench.kernels.timing import Timer, Times

SHAPES = [Shape(1, 20, 4, 2, 16, "bf16"), Shape(2, 33, 4, 2, 16, "bf16")]


class Stopwatch(Timer):
    """Counts what it is asked to time: the real one needs a GPU."""

    def __init__(self) -> None:
        self.timed = 0

    def time(self, work: Callable[[], object]) -> Times:
        work()
        self.timed += 1
        return Times(10.0, 9.0, 12.0)


def rows(
    decode_of: Callable[[Problem, int | None], Decode], sizes: list[int | None]
) -> tuple[list[Row], int]:
    timer = Stopwatch()
    found = list(measured("mine", decode_of, SHAPES, sizes, timer, "cpu"))
    return found, timer.timed


def test_what_agrees_is_timed_for_each_shape_and_block_size() -> None:
    found, timed = rows(lambda problem, size: sdpa.prepare(problem, None), [8, 16])
    assert [(row.shape, row.block_size) for row in found] == [
        (shape, size) for shape in SHAPES for size in (8, 16)
    ]
    assert timed == 4
    for row in found:
        assert (row.status, row.us, row.us_p20, row.us_p80) == ("timed", 10.0, 9.0, 12.0)
        assert row.relative_error is not None
        assert 0 < row.relative_error < 2e-2


@pytest.mark.parametrize("wrong", [1.05, float("nan")])
def test_what_disagrees_is_reported_and_not_timed(wrong: float) -> None:
    def prepare(problem: Problem, size: int | None) -> Decode:
        decode = sdpa.prepare(problem, None)
        return lambda: decode() * (wrong if problem.shape.batch == 2 else 1)

    found, timed = rows(prepare, [None])
    assert [row.status for row in found] == ["timed", "failed"]
    assert found[1].us is None
    assert found[1].note.startswith("its output is off by ")
    assert timed == 1


@pytest.mark.parametrize(
    ("error", "status", "note"),
    [
        (Unsupported("no such blocks"), "left out", "no such blocks"),
        (torch.OutOfMemoryError("CUDA out of memory"), "left out", "does not fit in memory"),
        (RuntimeError("nvcc failed\nat line 3"), "failed", "RuntimeError: nvcc failed"),
        (KeyError(), "failed", "KeyError"),
    ],
)
def test_a_failure_is_its_rows_alone(error: Exception, status: str, note: str) -> None:
    def prepare(problem: Problem, size: int | None) -> Decode:
        if size == 8:
            raise error
        return sdpa.prepare(problem, None)

    found, timed = rows(prepare, [8, 16])
    assert [row.status for row in found] == [status, "timed", status, "timed"]
    assert found[0].note.startswith(note)
    assert timed == 2


def test_a_shape_that_does_not_fit_leaves_the_next_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def allocate(problem: Problem) -> Tensor:
        if problem.shape.batch == 1:
            raise torch.OutOfMemoryError
        return real(problem)

    from bench.kernels import measure

    real = measure.reference
    monkeypatch.setattr(measure, "reference", allocate)
    found, _ = rows(lambda problem, size: sdpa.prepare(problem, None), [8, 16])
    assert [row.status for row in found] == ["left out", "left out", "timed", "timed"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_a_job_refuses() -> None:
    with pytest.raises(SettingError, match="cannot use this machine's GPU"):
        require_gpu()
