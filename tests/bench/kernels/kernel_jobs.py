"""What the tests of this folder run in other processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from bench.device.job import report_progress
from bench.kernels.problem import make_problem, reference, relative_error
from bench.kernels.providers import paged_decode, sdpa
from bench.kernels.rows import Row
from bench.kernels.shape import Shape
from bench.kernels.timing import Timer


def paged_decode_error(shape: Shape, block_size: int) -> float:
    """Of our kernel against the reference, on the CPU."""
    problem = make_problem(shape, "cpu")
    return relative_error(paged_decode.prepare(problem, block_size)(), reference(problem))


def times_us(payload: Mapping[str, Any]) -> list[list[float]]:
    """What a Timer measures of our kernel in each dtype and of SDPA, on this process's GPU."""
    timer = Timer(payload["repeats"])
    problems = {
        dtype: make_problem(Shape(2, 300, 8, 2, 64, dtype), "cuda")
        for dtype in ("bf16", "fp16", "fp8")
    }
    works = [paged_decode.prepare(problem, 16) for problem in problems.values()]
    works.append(sdpa.prepare(problems["bf16"], None))
    return [list(timer.time(work)) for work in works]


def report_one_and_die(payload: Mapping[str, Any]) -> None:
    """In place of bench.kernels.measure.measure_provider: ends as a crash in a kernel does."""
    shape, size = Shape(**payload["shapes"][0]), payload["block_sizes"][0]
    row = Row(payload["provider"], shape, size, "timed", us=10.0, us_p20=9.0, us_p80=12.0)
    report_progress({"row": asdict(row)})
    os.abort()
