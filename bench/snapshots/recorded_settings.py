"""The allocator's settings that a snapshot was recorded under."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MOST_CHARACTERS = 1000
MIB = 1 << 20


def recorded_conf(snapshot: Mapping[str, Any] | list[Any]) -> str | None:
    """As PYTORCH_ALLOC_CONF would have them, "" for none; None where a snapshot does not say."""
    settings = None if isinstance(snapshot, list) else snapshot.get("allocator_settings")
    if not isinstance(settings, dict) or not settings:
        return None
    given = settings.get("PYTORCH_ALLOC_CONF") or settings.get("PYTORCH_CUDA_ALLOC_CONF")
    if isinstance(given, str) and given and given.isprintable() and len(given) <= MOST_CHARACTERS:
        return given
    return ",".join(_changed(settings))  # they can be set while a program runs


def _changed(settings: Mapping[str, Any]) -> Iterator[str]:
    if settings.get("expandable_segments") is True:
        yield "expandable_segments:True"
    split_bytes = int(settings.get("max_split_size", -1))
    if 0 < split_bytes < 1 << 40:
        yield f"max_split_size_mb:{split_bytes // MIB}"
    threshold = float(settings.get("garbage_collection_threshold", 0.0))
    if 0 < threshold < 1:
        yield f"garbage_collection_threshold:{threshold:g}"
    divisions = settings.get("roundup_power2_divisions") or {}
    used = [f"{int(size)}:{int(n)}" for size, n in divisions.items() if int(n)]
    if used:
        yield f"roundup_power2_divisions:[{','.join(used)}]"
