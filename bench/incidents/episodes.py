"""A run's incidents, counted by layer, with the numbers that speak for each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from bench.incidents.reading import DERIVED, KV_KINDS, NUMBERS, Incident, readable
from bench.incidents.rules import NOT_KNOWN, Layer
from bench.report.results import Run

LABELS = ("backend", "engine", "workload", "model", "gpu", "device")


def layer_of(incident: Incident) -> str:
    """What the incident says."""
    return str(incident.get("layer", NOT_KNOWN))


def count(run: Run) -> dict[str, Any]:
    """What of a run's incidents was when, and of which layers; None where there is nothing."""
    incidents = [readable(incident) for incident in run.incidents]
    clock_s = run.number("simulated_s")
    layers = Counter(map(layer_of, incidents))
    order = sorted(layers, key=lambda layer: (-layers[layer], layer))
    return {
        "run": run.name,
        "path": str(run.path),
        **{key: getattr(run, key) for key in LABELS},
        "time": run.time,
        "status": run.status,
        "ended": run.status != "incomplete",
        "told": bool(incidents) or _is_quiet(run),
        "cause": run.cause,
        "incidents": len(incidents),
        "refusals": _refusals(incidents),
        "kinds": dict(Counter(incident["kind"] for incident in incidents)),
        "first_s": _first_s(incidents),
        "last_s": _last_s(incidents),
        "clock_s": clock_s,
        "incidents_per_hour": 3600 * len(incidents) / clock_s if clock_s else None,
        "layers": {layer: _of_layer(layer, incidents) for layer in order},
    }


def _is_quiet(run: Run) -> bool:
    """Whether no incident means that none was: the file is there, and the summary has none."""
    return any(run.path.rglob("incidents.jsonl")) and not run.number("incidents")


def _of_layer(layer: str, incidents: Iterable[Incident]) -> dict[str, Any]:
    own = [incident for incident in incidents if layer_of(incident) == layer]
    kinds = Counter(incident["kind"] for incident in own)
    commonest, _ = kinds.most_common(1)[0]
    worst: Incident = max(own, key=_severity)
    alike = [incident for incident in own if incident["kind"] == commonest]
    return {
        "incidents": len(own),
        "refusals": _refusals(own),
        "kinds": dict(kinds),
        "first_s": _first_s(own),
        "last_s": _last_s(own),
        "median_of": commonest,
        "median": {name: _median(alike, name) for name in (*NUMBERS, *DERIVED)},
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
    return [value for value in found if value is not None]


def _median(incidents: Iterable[Incident], name: str) -> float | None:
    values = _numbers(incidents, name)
    return median(values) if values else None


def _largest_free_share(incidents: Iterable[Incident]) -> float | None:
    """Largest free block / bytes asked for: the median of those that looked at all blocks."""
    shares = [
        incident["largest_free_bytes"] / incident["wanted_bytes"]
        for incident in incidents
        if "largest_free_bytes" in incident and incident.get("wanted_bytes")
    ]
    return median(shares) if shares else None


def _lacking_tokens(incidents: Iterable[Incident]) -> int | None:
    """Tokens that the budget was short of at most, for all live tokens and those to come, in
    blocks."""
    names = ("token_states_bytes", "live_tokens", "token_blocks_bytes", "needed_bytes",
             "usable_bytes")  # fmt: skip
    lacking = []
    for incident in incidents:
        if incident["kind"] not in KV_KINDS or not all(incident.get(name) for name in names):
            continue
        states, tokens, blocks, needed, usable = (incident[name] for name in names)
        lacking.append(math.ceil((blocks + needed - usable) * tokens / states))
    return max(lacking, default=None)


def _lacking_bytes(incidents: Iterable[Incident]) -> float | None:
    """Bytes beside KV memory that the card was short of at most."""
    lacking = [
        incident["needed_bytes"] - incident["available_bytes"]
        for incident in incidents
        if incident["kind"] not in KV_KINDS
        and "needed_bytes" in incident
        and "available_bytes" in incident
    ]
    return max(lacking, default=None)


def of_kv(found: Mapping[str, Any]) -> bool:
    """Whether the commonest of a layer's incidents asked for KV memory."""
    return found["median_of"] in KV_KINDS
