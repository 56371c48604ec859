"""Figures of several segments as those of one run.

Percentiles are of all request rows together, counts add up, and a mean is weighted by what it is a
mean over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench.metrics.inter_token import weighted_bins
from bench.metrics.outcomes import ratio
from bench.metrics.request_figures import read_requests, request_figures

CHECKPOINT, SUMMARY = "checkpoint.json", "summary.json"

Checkpoint = Mapping[str, Any]
Pool = Callable[[Sequence[Checkpoint], str], Any]


def read_checkpoint(folder: Path) -> dict[str, Any] | None:
    """A segment's figures at its last flush; None before the first. How many requests were sent and
    how long it took is as its summary has it, where there is one; what a server still wrote when
    its worker was gone was sent too."""
    try:
        found: dict[str, Any] = _json(folder / CHECKPOINT)
    except FileNotFoundError:
        return None
    if (folder / SUMMARY).exists():
        summary = _json(folder / SUMMARY)
        found["simulated_s"] = summary.get("simulated_s") or found["simulated_s"]
        found["sent"] = (summary.get("requests") or {}).get("sent", found["sent"])
    rows = sum(pq.read_metadata(part).num_rows for part in folder.glob("requests/*.parquet"))
    found["sent"] = max(found["sent"], rows)
    return found


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def pooled(folders: Sequence[Path]) -> dict[str, Any] | None:
    """summary.json of the segments in `folders`, null where there is not yet a checkpoint in any;
    requests that were sent and have no row are `lost`."""
    known = {folder: found for folder in folders if (found := read_checkpoint(folder))}
    if not known:
        return None
    checkpoints = list(known.values())
    length_s = sum(each["simulated_s"] for each in checkpoints)
    sent = sum(each["sent"] for each in checkpoints)
    first = checkpoints[0]
    gaps = weighted_bins(each["itl_bins"] for each in checkpoints)
    requests = read_requests(list(known))
    figures = request_figures(requests, sent, gaps, length_s)
    figures["requests"]["lost"] = sent - len(requests)
    return {
        **first["facts"],
        **figures,
        **{
            name: pool(checkpoints, name)
            for name, pool in POOLS.items()
            if name in first["figures"]
        },
        "simulated_s": length_s,
    }


def _values(checkpoints: Sequence[Checkpoint], name: str) -> list[Any]:
    return [each["figures"][name] for each in checkpoints]


def _total(checkpoints: Sequence[Checkpoint], name: str) -> Any:
    return _sum(_values(checkpoints, name))


def _sum(values: Sequence[Any]) -> Any:
    """Numbers add up, of mappings each key's; what is called a peak is the largest; null where none
    is known."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    if not isinstance(known[0], Mapping):
        return sum(known)
    keys = dict.fromkeys(key for value in known for key in value)
    return {
        key: (_most if "peak" in key else _sum)([value.get(key) for value in known]) for key in keys
    }


def _most(values: Iterable[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)


def _weighted(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    pairs = [(v, w) for v, w in zip(values, weights, strict=True) if v is not None]
    return ratio(sum(v * w for v, w in pairs), sum(w for _, w in pairs))


def _weights(checkpoints: Sequence[Checkpoint], *names: str) -> list[float]:
    return [sum(each["weights"][name] for name in names) for each in checkpoints]


def _batch(checkpoints: Sequence[Checkpoint], name: str) -> dict[str, float | None]:
    batches = _values(checkpoints, name)
    means = _weighted([each["mean"] for each in batches], _weights(checkpoints, "busy_s"))
    return {"mean": means, "max": _most(each["max"] for each in batches)}


def _memory_bound(checkpoints: Sequence[Checkpoint], name: str) -> dict[str, Any] | None:
    """Shares are of the same budget, averaged over each segment's memory-bound time."""
    bound = [each["figures"][name] for each in checkpoints]
    times_s = [
        each["simulated_s"] * (shares["share_of_time"] or 0.0) if shares else 0.0
        for each, shares in zip(checkpoints, bound, strict=True)
    ]
    known = [(shares, time) for shares, time in zip(bound, times_s, strict=True) if shares]
    if not known:
        return None
    shares = {
        key: _weighted([each[key] for each, _ in known], [time for _, time in known])
        for key in known[0][0]
    }
    whole_s = sum(each["simulated_s"] for each in checkpoints)
    return shares | {"share_of_time": ratio(sum(times_s), whole_s)}


def _held_waste(checkpoints: Sequence[Checkpoint], name: str) -> float | None:
    return _weighted(_values(checkpoints, name), _weights(checkpoints, "held_byte_s"))


def _sharing(checkpoints: Sequence[Checkpoint], name: str) -> dict[str, float | None]:
    saved = [each["saved"] for each in _values(checkpoints, name)]
    weights = _weights(checkpoints, "held_byte_s", "shared_byte_s")
    return {"saved": _weighted(saved, weights)}


def _prefix_cache(checkpoints: Sequence[Checkpoint], name: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = _total(checkpoints, name)
    if found is None:
        return None
    return found | {"hit_rate": ratio(found["hit_tokens"], found["query_tokens"])}


def _late_steps(checkpoints: Sequence[Checkpoint], name: str) -> dict[str, Any] | None:
    late = _values(checkpoints, name)
    if any(each is None for each in late):
        return None
    steps = [each["figures"]["steps"] for each in checkpoints]
    share = _weighted([each["share"] for each in late], steps)
    return {"share": share, "late_s": sum(each["late_s"] for each in late)}


def _warnings(checkpoints: Sequence[Checkpoint], name: str) -> list[str]:
    return list(dict.fromkeys(text for each in _values(checkpoints, name) for text in each))


POOLS: dict[str, Pool] = {
    "batch": _batch,
    "preemptions": _total,
    "late_steps": _late_steps,
    "warnings": _warnings,
    "prefix_cache": _prefix_cache,
    "sharing": _sharing,
    "memory_bound": _memory_bound,
    "held_waste": _held_waste,
    "incidents": _total,
    "allocator": _total,
    "sources": _total,
    "driver_s": _total,
    "steps": _total,
    "step_s": _total,
    "activation_replays": _total,
    "vllm_counted": _total,
}
