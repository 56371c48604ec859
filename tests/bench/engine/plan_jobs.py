"""How a card is divided: a job for the virtual GPU."""

from __future__ import annotations

from typing import Any

import torch
from hydra.utils import instantiate

from backends.base import BackendError
from bench.config import from_container
from bench.engine.device_memory import DeviceMemory
from bench.engine.limits import resolve_limits
from bench.errors import SettingError


def divide(payload: dict[str, Any]) -> dict[str, Any]:
    """The plan of a configuration, with what the allocator and the driver say of it, or why not."""
    config = from_container(payload["config"])
    backend = instantiate(payload["config"]["backend"], _convert_="all")
    limits = resolve_limits(config, backend)
    usable, _ = torch.cuda.mem_get_info()
    try:
        memory = DeviceMemory(config, backend, limits, "virtual")
    except (SettingError, BackendError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    assert memory.activations is not None
    rows = limits.max_num_seqs
    tokens = limits.token_budget + (rows if limits.prefill == "whole" else 0)
    usage = backend.usage()
    free, _ = torch.cuda.mem_get_info()
    return memory.facts(config) | {
        "card_usable": usable,
        "trace_peak": memory.activations._trace.peak_bytes(tokens, rows),
        "kv_usage_sum": sum(usage),
        "not_kv_allocated": torch.cuda.memory_allocated() - payload["pooled"] * usage.free,
        "driver_free": free,
        "reserved": torch.cuda.memory_reserved(),
    }
