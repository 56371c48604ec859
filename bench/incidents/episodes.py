"""A run's incidents, counted by layer, with the numbers that speak for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from bench.incidents.rules import Layer
from bench.report.results import Run

Incident = Mapping[str, Any]

NOT_KNOWN = "not_known"
"""The layer of incidents that say none: there was no allocator to ask, or the file is older."""

NUMBERS = (
    "wanted_bytes", "needed_bytes", "tried_bytes", "active_sequences", "live_tokens",
    "kv_budget_bytes", "held_bytes", "token_states_bytes", "reservation_bytes", "internal_bytes",
    "rounding_bytes", "cached_bytes", "free_bytes", "allocated_bytes", "reserved_bytes",
    "driver_free_bytes", "largest_free_bytes", "external_fragmentation", "headroom_left_bytes",
)  # fmt: skip
"""Of an incident; evidence has their medians."""

KV_KINDS = ("reserve_refused", "extend_refused")
"""Requests for KV memory; the other kinds are for memory beside it."""


def layer_of(incident: Incident) -> str:
    """What the incident says."""
    said = incident.get("layer")
    return str(said) if said in set(Layer) else NOT_KNOWN


def count(run: Run) -> dict[str, Any]:
    """What of a run's incidents was when, and of which layers; None where there is nothing."""
    incidents = run.incidents
    clock_s = run.number("simulated_s")
    layers = Counter(map(layer_of, incidents))
    order = sorted(layers, key=lambda layer: (-layers[layer], layer))
    return {
        "run": run.name,
        "path": str(run.path),
        **{key: getattr(run, key) for key in ("backend", "workload", "model", "gpu", "device")},
        "time": run.time,
        "status": run.status,
        "cause": run.cause,
        "incidents": len(incidents),
        "refusals": _refusals(incidents),
        "kinds": dict(Counter(str(incident.get("kind")) for incident in incidents)),
        "first_s": _first_s(incidents),
        "last_s": _last_s(incidents),
        "clock_s": clock_s,
        "incidents_per_hour": 3600 * len(incidents) / clock_s if clock_s else None,
        "layers": {layer: _of_layer(layer, incidents) for layer in order},
    }


def _of_layer(layer: str, incidents: Iterable[Incident]) -> dict[str, Any]:
    own = [incident for incident in incidents if layer_of(incident) == layer]
    kinds = Counter(str(incident.get("kind")) for incident in own)
    commonest, _ = kinds.most_common(1)[0]
    worst: Incident = max(own, key=_severity)
    alike = [incident for incident in own if str(incident.get("kind")) == commonest]
    return {
        "incidents": len(own),
        "refusals": _refusals(own),
        "kinds": dict(kinds),
        "first_s": _first_s(own),
        "last_s": _last_s(own),
        "median_of": commonest,
        "median": {name: _median(alike, name) for name in NUMBERS},
        "largest_free_share": _largest_free_share(alike),
        "lacking_tokens": _lacking_tokens(own) if layer == Layer.CAPACITY else None,
        "lacking_bytes": _lacking_bytes(own),
        "worst": worst,
    }


def _severity(incident: Incident) -> tuple[float, ...]:
    """What ended a run is worst, then who waited longest, was refused most and wanted most."""
    numbers = (incident.get(name) or 0 for name in ("waited_s", "refusals", "wanted_bytes"))
    return (bool(incident.get("ended_run")), *numbers)


def _refusals(incidents: Iterable[Incident]) -> int:
    return sum(int(incident.get("refusals", 1)) for incident in incidents)


def _first_s(incidents: Sequence[Incident]) -> float | None:
    return min(_numbers(incidents, "first_s"), default=None)


def _last_s(incidents: Sequence[Incident]) -> float | None:
    return max(_numbers(incidents, "last_s"), default=None)


def _numbers(incidents: Iterable[Incident], name: str) -> list[float]:
    found = (incident.get(name) for incident in incidents)
    return [value for value in found if isinstance(value, int | float)]


def _median(incidents: Iterable[Incident], name: str) -> float | None:
    values = _numbers(incidents, name)
    return median(values) if values else None


def _largest_free_share(incidents: Iterable[Incident]) -> float | None:
    """Largest free block / bytes asked for: the median of those that looked at all blocks."""
    shares = [
        incident["largest_free_bytes"] / incident["wanted_bytes"]
        for incident in incidents
        if incident.get("largest_free_bytes") is not None and incident.get("wanted_bytes")
    ]
    return median(shares) if shares else None


def _lacking_tokens(incidents: Iterable[Incident]) -> int | None:
    """Tokens that the budget was short of at most, for all live tokens and those to come."""
    lacking = []
    for incident in incidents:
        live, tokens = incident.get("token_states_bytes"), incident.get("live_tokens")
        if live and tokens and incident.get("kind") in KV_KINDS:
            short = live + incident["needed_bytes"] - incident["kv_budget_bytes"]
            lacking.append(-(-short * tokens // live))
    return max(lacking, default=None)


def _lacking_bytes(incidents: Iterable[Incident]) -> float | None:
    """Bytes beside KV memory that the card was short of at most."""
    lacking = [
        incident["needed_bytes"] - free
        for incident in incidents
        if incident.get("kind") not in KV_KINDS and (free := free_bytes(incident)) is not None
    ]
    return max(lacking, default=None)


def available_bytes(found: Mapping[str, Any]) -> float | None:
    """What was free for requests of the commonest kind, at the median incident: of the KV budget,
    with what rounding took, or of the card."""
    median = found["median"]
    if found["median_of"] not in KV_KINDS:
        return free_bytes(median)
    free, rounding = median["free_bytes"], median["rounding_bytes"]
    return None if free is None or rounding is None else float(free + rounding)


def sought_bytes(found: Mapping[str, Any]) -> float | None:
    """What these requests needed of it: the buffers of a KV request are asked for whole."""
    name = "wanted_bytes" if found["median_of"] in KV_KINDS else "needed_bytes"
    value: float | None = found["median"][name]
    return value


def free_bytes(numbers: Mapping[str, Any]) -> float | None:
    """What no tensor holds: the driver's memory, and what the allocator keeps."""
    names = ("driver_free_bytes", "reserved_bytes", "allocated_bytes")
    driver, reserved, allocated = (numbers.get(name) for name in names)
    if driver is None or reserved is None or allocated is None:
        return None
    return float(driver + reserved - allocated)
