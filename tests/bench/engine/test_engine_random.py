"""The engine keeps its books on every backend, whatever traffic and limits it meets."""

from __future__ import annotations

import pytest

from tests.backends.conformance import STRATEGIES
from tests.bench.engine.random_engine import check_random_engine
from tests.virtual_gpu import run_on_virtual_gpu

EXPANDABLE = "expandable_segments:True"
TIGHT = 6 << 20  # three pages beyond the KV budget


def _on_gpu(strategy: str, alloc_conf: str, examples: int) -> None:
    """On a roomy card, and on one where the allocator itself refuses KV and activations alike."""
    run_on_virtual_gpu(
        "tests.bench.engine.random_engine:on_virtual_gpu",
        {"strategy": strategy, "examples": examples, "slack_bytes": [None, TIGHT]},
        alloc_conf=alloc_conf,
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_books_agree_after_every_step_in_host_memory(strategy: str) -> None:
    check_random_engine(strategy, "cpu", examples=6)


def test_random_lives_meet_what_is_rare() -> None:
    """Branches that share blocks are preempted, and cancelled, and who lost its memory is paused;
    the lives are the same each time."""
    seen = check_random_engine("paged", "cpu", examples=80, derandomize=True)
    rare = ("shared", "preempted with branches", "cancelled with branches", "rejected", "failed",
            "paused and waiting")  # fmt: skip
    assert min(seen[event] for event in rare) > 0, seen


@pytest.mark.parametrize(
    "alloc_conf", ["", pytest.param(EXPANDABLE, marks=pytest.mark.long)],
    ids=["segments", "expandable"],
)  # fmt: skip
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_books_agree_after_every_step_in_the_caching_allocator(
    strategy: str, alloc_conf: str
) -> None:
    _on_gpu(strategy, alloc_conf, examples=4)


@pytest.mark.long
@pytest.mark.parametrize("alloc_conf", ["", EXPANDABLE], ids=["segments", "expandable"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_many_random_lives(strategy: str, alloc_conf: str) -> None:
    _on_gpu(strategy, alloc_conf, examples=100)
