"""Snapshots in all their forms, walked back to where their history began."""

from __future__ import annotations

from typing import Any

import pytest

from bench.snapshots.before import read_history
from bench.snapshots.recorded_settings import recorded_conf
from bench.snapshots.trace import MOST_CHARACTERS, MOST_LABELS, Action, History
from tests.bench.snapshots.support import MIB, block, event, freed, segment


def snapshot(trace: list[dict[str, Any]], *segments: dict[str, Any]) -> dict[str, Any]:
    return {"device_traces": [trace], "segments": list(segments)}


def blocks_of(history: History) -> list[tuple[int, int, bool]]:
    """Address and size in MiB, and whether it is pending."""
    return [(b["address"] // MIB, b["size"] // MIB, bool(b["pending"])) for b in history.blocks]


def segments_of(history: History) -> list[tuple[int, int]]:
    return [(s["address"] // MIB, s["size"] // MIB) for s in history.segments]


def test_what_a_history_explains_was_not_there_before() -> None:
    trace = [event("segment_alloc", 0, 20), event("alloc", 0, 5), event("alloc", 5, 5)]
    history = read_history(snapshot(trace, segment(0, 20, block(0, 5), block(5, 5))))
    assert blocks_of(history) == []
    assert segments_of(history) == []
    assert history.rows["action"].tolist() == [Action.SEGMENT_ALLOC, Action.ALLOC, Action.ALLOC]


def test_what_it_does_not_explain_was() -> None:
    # At the end: a block at 0 and one at 10. In the history 10 was allocated where 8 MiB had been,
    # which were freed in it, and a segment at 100 was given back.
    trace = [*freed(10, 8), event("alloc", 10, 5), event("segment_free", 100, 30)]
    history = read_history(snapshot(trace, segment(0, 20, block(0, 5), block(10, 5))))
    assert blocks_of(history) == [(0, 5, False), (10, 8, False)]
    assert segments_of(history) == [(0, 20), (100, 30)]


def test_a_part_that_was_unmapped_joins_the_segment_that_it_was_of() -> None:
    trace = [event("segment_unmap", 20, 20), event("segment_map", 60, 20)]
    parts = (segment(0, 20, is_expandable=True), segment(40, 40, is_expandable=True))
    assert segments_of(read_history(snapshot(trace, *parts))) == [(0, 60)]


@pytest.mark.parametrize("state", ["active_pending_free", "active_awaiting_free"])
def test_a_free_that_waits_at_the_end_was_no_wait_before_it_was_asked_for(state: str) -> None:
    waiting = segment(0, 20, block(0, 5, state))
    assert blocks_of(read_history(snapshot([], waiting))) == [(0, 5, True)]
    asked = [event("free_requested", 0, 5)]
    assert blocks_of(read_history(snapshot(asked, waiting))) == [(0, 5, False)]


def test_a_free_that_only_completes_in_the_history_waits_before_it() -> None:
    trace = [event("free_completed", 0, 5), event("alloc", 0, 5), *freed(0, 5)]
    assert blocks_of(read_history(snapshot(trace, segment(0, 20)))) == [(0, 5, True)]


def test_the_oldest_form_is_a_list_of_segments_whose_blocks_have_no_address() -> None:
    old = {"address": 0, "total_size": 20 * MIB, "blocks": [
        {"size": 5 * MIB, "state": "active_allocated", "history": [{"real_size": 4 * MIB}]},
        {"size": 5 * MIB, "state": "inactive"},
        {"size": 10 * MIB, "state": "active_allocated"},
    ]}  # fmt: skip
    history = read_history([old])
    assert blocks_of(history) == [(0, 5, False), (10, 10, False)]
    assert history.blocks["requested"].tolist() == [4 * MIB, 10 * MIB]
    assert recorded_conf([old]) is None


def test_devices_pools_streams_and_names_are_kept_apart() -> None:
    other = segment(0, 20, block(0, 7), device=1)
    named = event("alloc", 5, 5, stream=7, pool_id=(0, 3), user_metadata="kv")
    oom = {"action": "oom", "size": 9 * MIB, "device_free": 3 * MIB}
    trace = [named, event("snapshot"), oom]
    both = {"device_traces": [trace, []], "segments": [segment(0, 20, block(5, 5)), other]}
    rows = read_history(both, 0).rows
    assert rows["action"].tolist() == [Action.ALLOC, Action.OOM]
    assert rows["stream"].tolist() == [7, 0]
    assert rows["pool"].tolist() == [1, 0]
    assert rows["address"][1] == 3 * MIB
    assert read_history(both, 0).labels == ("", "kv")
    assert blocks_of(read_history(both, 1)) == [(0, 7, False)]


def test_names_are_cut_to_what_a_picture_has_room_for() -> None:
    named = [event("alloc", place, 1, user_metadata=f"{place}\x1b[31m" + "x" * 10**6)
             for place in range(MOST_LABELS + 5)]  # fmt: skip
    history = read_history(snapshot(named))
    assert len(history.labels) == MOST_LABELS
    assert history.labels[1] == "0?[31m" + "x" * (MOST_CHARACTERS - 6)
    assert history.rows["label"].tolist()[-6:] == [0] * 6


def test_settings_are_those_of_the_environment_or_what_was_set_while_it_ran() -> None:
    unset = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False}
    assert recorded_conf({"allocator_settings": unset}) == ""
    changed = unset | {"expandable_segments": True, "max_split_size": 64 * MIB,
                       "roundup_power2_divisions": {"1": 0, "256": 4}}  # fmt: skip
    assert recorded_conf({"allocator_settings": changed}) == (
        "expandable_segments:True,max_split_size_mb:64,roundup_power2_divisions:[256:4]"
    )
    given = changed | {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:32"}
    assert recorded_conf({"allocator_settings": given}) == "max_split_size_mb:32"
