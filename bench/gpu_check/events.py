"""A recorded allocation sequence, and what two replays of it differ in."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from bench.device.history import Event, read_history


def read_events(snapshot: Path) -> list[Event]:
    """The allocations and frees in a `memory_snapshot.pickle`. What was freed but allocated before
    the recording began is left out, and so is what did not fit."""
    with snapshot.open("rb") as file:
        return read_history(pickle.load(file)["device_traces"][0]).events


class Replay(NamedTuple):
    """After each event: bytes that the allocator has allocated and reserved, and the address that
    the event's memory has or had, 0 where it was refused."""

    allocated: list[int]
    reserved: list[int]
    addresses: list[int]
    retries: int
    refused: int


class Difference(NamedTuple):
    """The first event after which two replays differ, in words, and how many there are in all."""

    first: str
    events: int
    largest_share: float
    """Of reserved bytes, over all events."""


def compare(events: Sequence[Event], card: Replay, virtual: Replay) -> Difference | None:
    """None if allocated and reserved bytes are the same after every event."""
    differing = [place for place, pair in enumerate(_pairs(card, virtual)) if pair[0] != pair[1]]
    if not differing:
        return None
    shares = (
        abs(a - b) / max(a, b, 1)
        for a, b in zip(card.reserved, virtual.reserved, strict=False)
    )  # fmt: skip
    first = _describe(events, differing[0], card, virtual)
    return Difference(first, len(differing), max(shares, default=0.0))


def _pairs(card: Replay, virtual: Replay) -> Iterator[tuple[tuple[int, int] | None, ...]]:
    """(allocated, reserved) of both after each event; None after one's last."""
    return zip_longest(
        zip(card.allocated, card.reserved, strict=True),
        zip(virtual.allocated, virtual.reserved, strict=True),
    )


def _describe(events: Sequence[Event], place: int, card: Replay, virtual: Replay) -> str:
    index, size = events[place] if place < len(events) else (0, 0)
    verb = "allocates" if index >= 0 else "frees"
    event = f"event {place} ({verb} {size:,} bytes)"
    if place >= min(len(card.reserved), len(virtual.reserved)):
        shorter = "the card" if len(card.reserved) < len(virtual.reserved) else "the virtual GPU"
        return f"{event} is missing on {shorter}"
    found = [
        f"{name} {ours[place]:,} on the card and {theirs[place]:,} on the virtual GPU"
        for name, ours, theirs in (
            ("allocated", card.allocated, virtual.allocated),
            ("reserved", card.reserved, virtual.reserved),
        )
        if ours[place] != theirs[place]
    ]
    order = "the same" if _in_one_order(events[:place], card, virtual) else "another"
    return f"after {event}: {', '.join(found)}; what was there before lay in {order} order"


def _in_one_order(events: Sequence[Event], card: Replay, virtual: Replay) -> bool:
    """Whether the live allocations lie in the same order of addresses on both: of equally large
    free blocks the allocator takes the one with the lowest address."""
    live: dict[int, int] = {}
    for place, (index, _) in enumerate(events):
        if index >= 0:
            live[index] = place
        else:
            live.pop(~index, None)
    orders = [sorted(live.values(), key=replay.addresses.__getitem__) for replay in (card, virtual)]
    return orders[0] == orders[1]
