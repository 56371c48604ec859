"""Every strategy through the same random lives."""

from __future__ import annotations

import pytest

from tests.backends.conformance import STRATEGIES, check_random_life
from tests.virtual_gpu import run_on_virtual_gpu

EXPANDABLE = "expandable_segments:True"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_books_agree_in_host_memory(strategy: str) -> None:
    check_random_life(strategy, "cpu", examples=60)


@pytest.mark.parametrize("alloc_conf", ["", EXPANDABLE])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_books_agree_in_the_caching_allocator(strategy: str, alloc_conf: str) -> None:
    run_on_virtual_gpu(
        "tests.backends.conformance:on_virtual_gpu",
        {"strategy": strategy, "examples": 30},
        alloc_conf=alloc_conf,
    )
