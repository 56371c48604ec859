"""The search for the step overhead, and that what it found is what is used."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from bench.packaged import load_constants
from bench.paper.fig13 import PUBLISHED
from bench.paper.fit import RANGE_US, STEP_US, bisect, mean_batch
from bench.paper.setups import SHAREGPT
from bench.paper.systems import VLLM
from tests.virtual_gpu import skip_without_virtual_gpu

FOUND_US = int(load_constants("sosp23").step_overhead_us)


@pytest.mark.parametrize("wanted_us", [1, 4_321, 20_000])
def test_the_search_ends_a_step_or_less_above(wanted_us: int) -> None:
    found = bisect(lambda overhead_us: overhead_us / 1000, wanted_us / 1000)
    assert 0 <= found - wanted_us < STEP_US
    assert RANGE_US[0] <= found <= RANGE_US[1]


@pytest.mark.long
def test_the_fitted_overhead_gives_the_published_batch(tmp_path: Path) -> None:
    """One hour of traffic; half a per cent is what STEP_US and rounding leave."""
    skip_without_virtual_gpu()
    mean = mean_batch(FOUND_US, Console(file=io.StringIO()))
    assert mean == pytest.approx(PUBLISHED[SHAREGPT][VLLM], rel=0.005)
