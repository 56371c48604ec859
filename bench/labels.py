"""What a run is called in its summary, also when it never began."""

from __future__ import annotations

from typing import Any

from workloads.trace_file import trace_name


def labels(config: dict[str, Any], device: str) -> dict[str, Any]:
    """Name, device and choices of a run; times are measured unless the device is virtual."""
    path = config["workload"].get("path")
    return {
        "name": config["name"],
        "device": device,
        "time": "modelled" if device == "virtual" else "measured",
        "backend": config["backend"].get("name"),
        "workload": trace_name(path) if path else config["workload"].get("name"),
        "model": config["model"]["name"],
        "engine": config["engine"]["name"],
        "gpu": config["gpu"]["name"],
        "seed": config["seed"],
    }
