"""Runs of engine=vllm, read for their memory and what was scheduled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.report.results import Run, load_runs

READ = {
    "num_gpu_blocks": ("vllm", "num_gpu_blocks"),
    "weights_bytes": ("weights_bytes",),
    "activation_peak_bytes": ("activation_peak_bytes",),
    "started_reserved_bytes": ("vllm", "card", "started", "reserved_bytes"),
    "peak_reserved_bytes": ("allocator", "peak_reserved_bytes"),
    "graph_pool_bytes": ("vllm", "graph_pool_bytes"),
    "graphs": ("vllm", "graphs"),
    "steps": ("steps",),
    "preemptions": ("preemptions",),
    "completed": ("requests", "completed"),
    "total_bytes": ("vllm", "card", "total_bytes"),
    "before_launch_beside_bytes": ("vllm", "card", "before_launch", "beside_allocator_bytes"),
    "first_reading_beside_bytes": ("vllm", "card", "first_reading", "beside_allocator_bytes"),
    "started_beside_bytes": ("vllm", "card", "started", "beside_allocator_bytes"),
    "end_beside_bytes": ("vllm_card_at_end", "beside_allocator_bytes"),
}
"""What is compared, and where summary.json has it. `beside` is what is taken outside PyTorch's
allocator: before the first kernel, when vLLM first looked, when it had started, at the end."""


class Case(NamedTuple):
    """What cells differ in: vllm.mode, and kv_budget where it is set."""

    mode: str
    kv_budget: str | None

    def __str__(self) -> str:
        return self.mode if self.kv_budget is None else f"{self.mode}, kv_budget={self.kv_budget}"


class Cell(NamedTuple):
    """`found` is empty where the run did not end well, for which `cause` says why."""

    found: Mapping[str, int]
    cause: str | None
    version: str | None
    """Of vLLM."""


def read_cells(folder: Path) -> dict[Case, Cell]:
    """The runs of a matrix, by what they differ in; none where it left nothing."""
    runs = load_runs(folder) if any(folder.glob("*/summary.json")) else []
    return {_case(run): read_cell(run.summary) for run in runs}


def _case(run: Run) -> Case:
    return Case(run.config["vllm"]["mode"], run.config["kv_budget"])


def read_cell(summary: Mapping[str, Any]) -> Cell:
    """A run's readings, of its summary.json."""
    if summary.get("status") != "completed":
        return Cell({}, summary.get("cause") or "it left no summary", None)
    found = {name: _at(summary, keys) for name, keys in READ.items()}
    return Cell(found, None, summary["vllm"]["version"])


def _at(summary: Mapping[str, Any], keys: Sequence[str]) -> int:
    found: Any = summary
    for key in keys:
        found = found[key]
    return int(found)
