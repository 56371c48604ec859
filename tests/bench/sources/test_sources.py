"""What every source keeps to: memory is counted, given back, and the same for the same seed."""

from __future__ import annotations

from typing import Any

import pytest

from bench.sources.settings import SET_ASIDE_BY
from tests.bench.sources.support import EXPANDABLE, NAMES, job, settings

SMALL: dict[str, dict[str, Any]] = {
    "lora": {"adapters": 6, "slots": 4},
    "speculative": {"layers": 2},
    "growing_kv": {"layers": 2, "every_tokens": 8},
    "beams": {"share": 0.5},
    "graphs": {"step": 4},
}
"""Settings for a model of two layers."""
HELD_FOR_SEQUENCES = ("speculative", "beams", "growing_kv")


def run(name: str, **more: Any) -> dict[str, Any]:
    source = settings(name, **SMALL.get(name, {}))
    found: dict[str, Any] = job("in_an_engine", source=source, **{"backend": "paged"} | more)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_source_gives_back_all_that_it_takes(name: str) -> None:
    found = run(name)
    assert found["completed"] == 12
    assert found["summary"]["allocations"] > 0
    assert found["summary"]["refused"] == 0
    assert found["summary"]["peak_bytes"] > 0
    assert found["differences"] == [0]  # nothing else is alive between steps
    assert (found["left"], found["others"]) == (0, [0, 0])
    if name in HELD_FOR_SEQUENCES:
        assert found["idle"] == 0


@pytest.mark.parametrize("name", NAMES)
def test_terms_of_kv_memory_add_up_beside_a_source_in_the_same_allocator(name: str) -> None:
    found = run(name, backend="contiguous", alloc_conf=EXPANDABLE)
    assert found["sums"] == [0]
    assert found["completed"] == 12
    assert found["left"] == 0


@pytest.mark.parametrize("name", ["lora", "beams"])
def test_a_seed_says_what_is_drawn(name: str) -> None:
    first, again, other = (run(name, seed=seed)["summary"] for seed in (0, 0, 1))
    assert first == again
    assert first != other


@pytest.mark.parametrize("name", NAMES)
def test_a_source_without_room_does_without_and_the_run_goes_on(name: str) -> None:
    """All that is not planned for is refused, an incident a wait, and no request is lost."""
    found = run(name, headroom=0)
    assert found["completed"] == 12
    assert found["left"] == 0
    summary = found["summary"]
    assert summary["peak_bytes"] <= found["planned"]
    assert bool(found["planned"]) == (name in SET_ASIDE_BY)  # as errors say what to lower
    if found["planned"]:
        assert summary["refused"] == 0
        assert found["incidents"] == []
        return
    assert summary["refused"] > 0
    assert {incident["kind"] for incident in found["incidents"]} == {"source_refused"}
    assert sum(incident["refusals"] for incident in found["incidents"]) == summary["refused"]
    assert len(found["incidents"]) == 1  # it never got anything in between
