"""How a run's lengths were drawn, in words, from the configuration that it kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def drawn_from(config: Mapping[str, Any]) -> str:
    """The distributions or the file of a run's `config.yaml`."""
    workload = config.get("workload", {})
    if workload.get("path"):
        return f"trace {Path(workload['path']).name}"
    parts = [_kind(kind) for kind in workload.get("kinds", {}).values()]
    return "; ".join(dict.fromkeys(parts)) or f"workload={workload.get('name')}"


def _kind(kind: Mapping[str, Any]) -> str:
    pairs = kind.get("pairs")
    if pairs:
        return f"pairs of {Path(pairs['path']).name}"
    return f"prompt {_distribution(kind['prompt'])}; output {_distribution(kind['output'])}"


def _distribution(lengths: Mapping[str, Any]) -> str:
    """Such as `lognormal mean_tokens=161.31 cv=1.3 min_tokens=4 max_tokens=1024`."""
    name = str(lengths["_target_"]).split(".")[-2]
    settings = (f"{key}={_short(value)}" for key, value in lengths.items() if key != "_target_")
    return " ".join([name, *settings])


def _short(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
