"""Medians and spreads, and that all that is timed can be captured and replayed."""

from __future__ import annotations

import pytest

from bench.kernels.timing import percentiles_us
from tests.virtual_gpu import run_on_virtual_gpu, skip_without_virtual_gpu


def test_percentiles_of_repeats() -> None:
    """0 to 10 ms, shuffled: the median is 5, a fifth are up to 2, four fifths up to 8."""
    times = percentiles_us([7.0, 0.0, 3.0, 10.0, 1.0, 9.0, 5.0, 2.0, 8.0, 4.0, 6.0])
    assert times == pytest.approx((5000, 2000, 8000))


def test_on_the_virtual_gpu_it_runs_and_measures_nothing() -> None:
    """PyTorch's own capture and replay, and Triton's launches; events there are 0 ms apart."""
    skip_without_virtual_gpu()
    target = "tests.bench.kernels.kernel_jobs:times_us"
    times = run_on_virtual_gpu(target, {"repeats": 5}, gpu="h100_80gb")
    assert times == [[0.0, 0.0, 0.0]] * 4
