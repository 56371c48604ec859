"""A device's memory as a run finds it: weights loaded, activations recorded, KV started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from backends.base import Backend, KvHeads, KvLayout
from bench.config import Config
from bench.engine.activations import Activations, record
from bench.engine.memory_plan import (
    MemoryPlan,
    check_weights_fit,
    load_weights,
    plan_gpu_memory,
    plan_host_memory,
)
from bench.engine.scheduler import Limits
from bench.errors import SettingError
from bench.metrics.allocator import AllocatorProbe
from bench.model.checkpoint import load_decoder
from bench.model.decoder import Decoder
from bench.model.weights import compute_dtype, random_decoder


class DeviceMemory:
    """The device's memory set up for a run: weights loaded, activations known, KV started."""

    def __init__(self, config: Config, backend: Backend, limits: Limits, device: str) -> None:
        self.on_gpu = device in ("virtual", "cuda")
        self.device = "cuda" if self.on_gpu else "cpu"
        self.decoder: Decoder | None = None
        self.probe = AllocatorProbe() if self.on_gpu else None
        self.activations: Activations | None = None
        self.plan = (
            self._start_gpu(config, backend, limits) if self.on_gpu else plan_host_memory(config)
        )
        self.token_bytes = config.model.kv_bytes_per_token(config.kv_dtype, config.tensor_parallel)
        layout = KvLayout(
            layers=config.model.layers,
            token_bytes=self.token_bytes,
            max_model_len=config.max_model_len,
            budget_bytes=self.plan.kv_budget_bytes,
            device="cuda" if self.on_gpu else "cpu",
            heads=None if self.on_gpu else self._start_computing(config),
        )
        backend.start(layout)
        if self.probe:
            self.probe.start()

    def _start_gpu(self, config: Config, backend: Backend, limits: Limits) -> MemoryPlan:
        _check_card(config)
        _check_dtypes(config)
        usable, _ = torch.cuda.mem_get_info()
        check_weights_fit(config, usable)
        trace = record(config.model, config.tensor_parallel)
        self.activations = Activations(
            trace,
            ages="garbage_collection_threshold" in (backend.alloc_conf + config.alloc_conf),
            driver_calls=lambda: sum(self.driver_calls().values()),
        )
        self.weights = load_weights(config)
        tokens, rows = limits.largest_step
        return plan_gpu_memory(config, self.activations, tokens, rows, usable)

    def _start_computing(self, config: Config) -> KvHeads:
        """Makes the model, and says what its K and V are."""
        dtype = compute_dtype("weight_dtype", config.weight_dtype)
        self.decoder = (
            load_decoder(config.model, dtype)
            if config.model.checkpoint
            else random_decoder(config.model, dtype, config.seed)
        )
        kv_dtype = compute_dtype("kv_dtype", config.kv_dtype)
        return KvHeads(config.model.kv_heads, config.model.head_dim, kv_dtype)

    def facts(self, config: Config) -> dict[str, Any]:
        """What summary.json says of memory's division."""
        return {
            "kv_budget_bytes": self.plan.kv_budget_bytes,
            "kv_bytes_per_token": self.token_bytes,
            "weights_bytes": self.plan.weights_bytes,
            "workspace_bytes": self.plan.workspace_bytes,
            "activation_peak_bytes": self.plan.activation_peak_bytes,
            "held_back_bytes": self.plan.held_back_bytes,
        }

    def driver_calls(self) -> dict[str, int]:
        """Driver calls by kind since the process began; none are made for host memory."""
        return self.probe.driver_calls() if self.probe else {}

    def allocator_row(self) -> dict[str, Any]:
        """The allocator's part of a timeline row; null without one."""
        return self.probe.row() if self.probe else {}

    def allocator_counters(self) -> dict[str, Any]:
        """The cheap part of it, for incidents."""
        return self.probe.counters() if self.probe else {}

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


def _check_card(config: Config) -> None:
    """Raises SettingError where the card is another than `gpu`, whose times are modelled."""
    found = torch.cuda.get_device_name(0)
    if found != config.gpu.device_name:
        raise SettingError(
            f"the card is {found!r} and gpu={config.gpu.name} is {config.gpu.device_name!r}, whose "
            "times would be modelled: choose the gpu= that is there, set gpu.device_name to it to "
            "model its times so all the same, or use device=virtual."
        )


def _check_dtypes(config: Config) -> None:
    """Raises SettingError for what no server keeps on a GPU, whose steps are of 16 bits here."""
    for setting in ("weight_dtype", "kv_dtype"):
        if getattr(config, setting) == "fp32":
            raise SettingError(f"{setting}=fp32 is for device=cpu: choose fp16, bf16 or fp8.")
