"""One line of incidents.jsonl as it can be counted: files may be older, newer or damaged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bench.incidents.rules import Layer

Incident = Mapping[str, Any]

NUMBERS = (
    "wanted_bytes", "needed_bytes", "tried_bytes", "active_sequences", "live_tokens",
    "kv_budget_bytes", "usable_bytes", "held_bytes", "token_states_bytes", "token_blocks_bytes",
    "reservation_bytes", "internal_bytes", "rounding_bytes", "cached_bytes", "free_bytes",
    "allocated_bytes", "reserved_bytes", "driver_free_bytes", "largest_free_bytes",
    "external_fragmentation", "headroom_left_bytes",
)  # fmt: skip
"""Of an incident; evidence has their medians, and those of what is derived of them."""

DERIVED = ("kept_bytes", "available_bytes")
"""Cached by the allocator, and what was there for the request: of the KV budget what nobody holds,
less what a pool's units cannot use, or of the card."""

KV_KINDS = ("reserve_refused", "extend_refused")
"""Requests for KV memory; the other kinds are for memory beside it."""

_NUMBERS = {*NUMBERS, "first_s", "last_s", "waited_s", "refusals"}
_TEXTS = {"kind", "layer", "error", "source"}


def readable(incident: Incident) -> Incident:
    """Without what is null or not of its type, and without a layer that is none; with what is
    derived, where all that it is made of is there."""
    kept = {key: value for key, value in incident.items() if _is_its_type(key, value)}
    if kept.get("layer") not in set(Layer):
        kept.pop("layer", None)
    kept.setdefault("kind", "refused")
    derived = {
        "kept_bytes": _sum(kept, "reserved_bytes", minus="allocated_bytes"),
        "available_bytes": _available_bytes(kept),
    }
    return kept | {name: value for name, value in derived.items() if value is not None}


def _is_its_type(key: str, value: Any) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return False
    if key in _NUMBERS:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return value is not None and (key not in _TEXTS or isinstance(value, str))


def _available_bytes(incident: Incident) -> float | None:
    if incident["kind"] in KV_KINDS:
        return _sum(incident, "usable_bytes", minus="held_bytes")
    if "headroom_left_bytes" in incident:  # its limit refused it
        return float(incident["headroom_left_bytes"])
    return _sum(incident, "driver_free_bytes", "reserved_bytes", minus="allocated_bytes")


def _sum(incident: Incident, *plus: str, minus: str) -> float | None:
    if not all(name in incident for name in (*plus, minus)):
        return None
    return float(sum(incident[name] for name in plus) - incident[minus])
