"""Which settings are worth advising, by the engine that ran."""

from __future__ import annotations

from bench.report.results import Run

OURS_ALONE = ("engine.max_live_tokens", "engine.activation_buckets", "tensor_parallel",
              "weight_dtype", "backend.layout")  # fmt: skip
"""Settings that engine=vllm does not follow (bench/vllm/settings.py)."""


def followed(run: Run, *changes: str) -> str:
    """Changes of settings, in a row, without those that the run's engine does not follow."""
    return ", ".join(change for change in changes if run.engine != "vllm" or _is_for_all(change))


def _is_for_all(change: str) -> bool:
    return not any(setting in change for setting in OURS_ALONE)
