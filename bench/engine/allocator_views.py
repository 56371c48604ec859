"""What of the caching allocator a run writes: for memory of any engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.config import Config
from bench.engine.activations import Activations
from bench.engine.memory_plan import MemoryPlan
from bench.metrics.allocator import AllocatorProbe


class AllocatorViews:
    """The device's memory of a run, divided by `plan`; `probe` reads the allocator, if there is
    one."""

    plan: MemoryPlan
    token_bytes: int
    activations: Activations | None = None
    """Those that are replayed."""

    def __init__(self, probe: AllocatorProbe | None) -> None:
        self.probe = probe

    def start(self) -> None:
        """From here on the allocator's counts belong to the run."""
        if self.probe:
            self.probe.start()

    def facts(self, config: Config) -> dict[str, Any]:
        """What summary.json says of memory's division."""
        return {
            "kv_budget_bytes": self.plan.kv_budget_bytes,
            "kv_bytes_per_token": self.token_bytes,
            "weights_bytes": self.plan.weights_bytes,
            "workspace_bytes": self.plan.workspace_bytes,
            "activation_peak_bytes": self.plan.activation_peak_bytes,
            "held_back_bytes": self.plan.held_back_bytes,
            "sources_bytes": self.plan.sources_bytes,
            "headroom_bytes": self.plan.headroom_bytes,
        }

    def counted_by_engine(self) -> dict[str, Any]:
        """What an engine that is not ours counted itself, for summary.json."""
        return {}

    def driver_calls(self) -> dict[str, int]:
        """Driver calls by kind since the process began; none are made for host memory."""
        return self.probe.driver_calls() if self.probe else {}

    def allocator_row(self) -> dict[str, Any]:
        """The allocator's part of a timeline row; null without one."""
        return self.probe.row() if self.probe else {}

    def allocator_now(self) -> dict[str, Any]:
        """The allocator's part of an incident that it was not asked in."""
        return self.probe.now() if self.probe else {}

    def allocator_at_failure(self) -> dict[str, Any]:
        """The allocator's part of an incident that it refused memory in."""
        return self.probe.at_failure() if self.probe else {}

    def record_history(self) -> None:
        """Keeps the allocator's events for `dump_snapshot`."""
        if self.probe:
            self.probe.record_history()

    def dump_snapshot(self, path: Path) -> None:
        """Writes the allocator's state and events; nothing where there is no allocator."""
        if self.probe:
            self.probe.dump(path)

    def allocator_summary(self) -> dict[str, Any] | None:
        """summary.json's `allocator`; null without one."""
        return self.probe.summary() if self.probe else None
