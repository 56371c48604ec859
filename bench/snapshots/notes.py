"""What a reader of a replay should know of it, a sentence each, from its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.snapshots.outcome import GIB, Likeness
from bench.snapshots.settings import Settings, name_of

UNLIKE_BYTES = GIB


def notes(
    settings: Settings,
    recorded: Mapping[str, Any],
    confs: Sequence[str],
    likenesses: Sequence[Likeness | None],
) -> Iterator[str]:
    """Of what was recorded, of the card, of settings that do nothing, and of how alike a replay
    under the recorded settings is."""
    if not recorded["events"]:
        yield (
            "The snapshot has no history: what was in use at its end is placed, and nothing "
            "follows."
        )
    elif recorded["blocks_before"]:
        yield (
            f"The history begins in mid-life: {recorded['blocks_before']:,} blocks "
            f"({recorded['bytes_before'] / GIB:,.2f} GiB) were there before, and are placed first."
        )
    yield from _of_the_card(settings, recorded["room_bytes"])
    idle = [conf for conf in confs if "garbage_collection_threshold" in conf]
    if idle and settings.memory_fraction is None:
        yield (
            f"{idle[0]}: PyTorch collects garbage only in programs that call "
            "set_per_process_memory_fraction; memory_fraction= says that this one does."
        )
    for conf, each in zip(confs, likenesses, strict=True):
        if each is not None:
            yield _of_likeness(name_of(conf), each)


def _of_the_card(settings: Settings, room_bytes: int | None) -> Iterator[str]:
    usable = settings.gpu.usable_bytes
    if room_bytes is not None and abs(usable - room_bytes) > UNLIKE_BYTES:
        yield (
            f"Where this was recorded {room_bytes / GIB:,.2f} GiB were there for the allocator "
            f"when it ran out; this card has {usable / GIB:,.2f}: gpu= or memory= makes it alike."
        )


def _of_likeness(name: str, likeness: Likeness) -> str:
    if not likeness.differing:
        return (
            f"Under {name}, as recorded, the replay reserves the recorded bytes after each of its "
            f"{likeness.steps:,} steps."
        )
    return (
        f"Under {name}, as recorded, the replay reserves other bytes than were recorded after "
        f"{likeness.differing:,} of {likeness.steps + 1:,} steps, by at most "
        f"{likeness.largest_share:.1%}: the card, PyTorch or what was there before is another."
    )
