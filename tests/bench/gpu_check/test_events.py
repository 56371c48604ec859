"""What a recording is read as, and how two replays are told apart."""

from __future__ import annotations

import pickle
from pathlib import Path

from bench.gpu_check.events import Replay, compare, read_events

EVENTS = [(0, 512), (1, 1024), (~0, 512), (2, 2048), (~1, 1024)]
ALLOCATED = [512, 1536, 1024, 3072, 2048]
RESERVED = [2 << 20] * 5
ADDRESSES = [100, 200, 100, 300, 200]


def replay(
    allocated: list[int] = ALLOCATED,
    reserved: list[int] = RESERVED,
    addresses: list[int] = ADDRESSES,
) -> Replay:
    return Replay(allocated, reserved, addresses, retries=0, refused=0)


def test_allocations_are_numbered_and_frees_name_them(tmp_path: Path) -> None:
    """An address is used again; what was there before the recording is no part of it."""
    trace = [
        ("free_completed", 7, 64),
        ("segment_alloc", 0, 2 << 20),
        ("alloc", 10, 100),
        ("alloc", 20, 200),
        ("free_requested", 10, 100),
        ("free_completed", 10, 100),
        ("oom", 5, 1 << 40),
        ("alloc", 10, 300),
        ("snapshot", 0, 0),
        ("free_completed", 10, 300),
    ]
    entries = [{"action": a, "addr": address, "size": size} for a, address, size in trace]
    path = tmp_path / "memory_snapshot.pickle"
    path.write_bytes(pickle.dumps({"device_traces": [entries]}))
    assert read_events(path) == [(0, 100), (1, 200), (~0, 100), (2, 300), (~2, 300)]


def test_replays_that_are_the_same_differ_in_nothing() -> None:
    """Addresses may be others, as they are on every card."""
    assert compare(EVENTS, replay(), replay(addresses=[8, 16, 8, 24, 16])) is None


def test_the_first_event_that_differs_is_named_with_both_values() -> None:
    other = replay(reserved=[2 << 20, 2 << 20, 2 << 20, 4 << 20, 4 << 20])
    found = compare(EVENTS, replay(), other)
    assert found is not None
    assert found.events == 2
    assert found.largest_share == 0.5
    assert found.first == (
        "after event 3 (allocates 2,048 bytes): reserved 2,097,152 on the card and 4,194,304 on "
        "the virtual GPU; what was there before lay in the same order"
    )


def test_it_is_said_where_addresses_lie_in_another_order() -> None:
    other = replay(allocated=[512, 1536, 1024, 3072, 0], addresses=[300, 200, 300, 100, 200])
    found = compare(EVENTS, replay(), other)
    assert found is not None
    assert "event 4 (frees 1,024 bytes)" in found.first
    assert "allocated 2,048 on the card and 0 on the virtual GPU" in found.first
    assert found.first.endswith("lay in another order")


def test_an_event_that_is_missing_at_the_end_is_named() -> None:
    short = Replay(ALLOCATED[:-1], RESERVED[:-1], ADDRESSES[:-1], 0, 0)
    found = compare(EVENTS, replay(), short)
    assert found is not None
    assert found.first == "event 4 (frees 1,024 bytes) is missing on the virtual GPU"
    assert found.events == 1
