"""The segments of a soak, as its books have them (docs/soak.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

SOAK = "soak.json"
_MOMENTS = ("first_s", "last_s")


class SegmentFolder(NamedTuple):
    """A segment's folder, and when it began on the soak's clock."""

    path: Path
    start_s: float


def read_segments(soak: Path, notes: list[str]) -> list[SegmentFolder]:
    """Segments in order; none, with a note, where the books cannot be read."""
    try:
        books = json.loads((soak / SOAK).read_text(encoding="utf-8"))
        return [
            SegmentFolder(soak / segment["folder"], float(segment["start_s"]))
            for segment in books["segments"]
        ]
    except (OSError, ValueError, KeyError, TypeError):
        notes.append(f"{SOAK} could not be read")
        return []


def moved(incident: Mapping[str, Any], start_s: float) -> Mapping[str, Any]:
    """An incident with its moments on the soak's clock."""
    moments = {
        name: incident[name] + start_s
        for name in _MOMENTS
        if isinstance(incident.get(name), int | float)
    }
    return {**incident, **moments}
