"""What a GPU's memory is divided into before the first request: weights, activations, KV.

KV budget = usable x utilization - weights - workspace - the profiled peak of activations, or
`kv_budget` outright. In the latter case the rest of the card is held back as if another tenant
had it, so that the share of slack beyond the budget is what `utilization` says, large card or
small: fragmentation has to bite in the room that it would have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from bench.config import Config, parse_bytes
from bench.device.stats import hold_back
from bench.errors import SettingError
from bench.sources.settings import SET_ASIDE_BY

RunStep = Callable[[int, int], None]
"""Takes the activations of a step of so many tokens and sampled rows, and lets them go."""

GIB = 1 << 30
PAGE_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes on one GPU; `held_back` is what another tenant is made to hold, `sources` what is set
    aside for fragmentation sources, `headroom` what nobody was given."""

    usable_bytes: int
    weights_bytes: int
    workspace_bytes: int
    activation_peak_bytes: int
    kv_budget_bytes: int
    held_back_bytes: int
    sources_bytes: int = 0
    headroom_bytes: int = 0


def check_weights_fit(config: Config, usable_bytes: int) -> int:
    """Bytes of weights on one GPU. Raises SettingError when they do not fit."""
    weights = config.model.weight_bytes(config.weight_dtype, config.tensor_parallel)
    if weights > usable_bytes * config.utilization:
        raise SettingError(
            f"model={config.model.name} needs {weights / GIB:.1f} GiB of {config.weight_dtype} "
            f"weights on each of tensor_parallel={config.tensor_parallel} GPUs and "
            f"gpu={config.gpu.name} has {usable_bytes * config.utilization / GIB:.1f} GiB at "
            f"utilization={config.utilization}: choose a larger gpu, more tensor_parallel or a "
            "smaller weight_dtype."
        )
    return weights


def load_weights(config: Config) -> list[torch.Tensor]:
    """The model's weights as allocations of their real sizes; nothing is written to them.

    Raises SettingError where the allocator's rounding is what no longer fits.
    """
    tensors = config.model.weight_tensors(config.weight_dtype, config.tensor_parallel)
    try:
        return [torch.empty(t.nbytes, dtype=torch.uint8, device="cuda") for t in tensors]
    except torch.OutOfMemoryError as error:
        raise SettingError(
            f"model={config.model.name} fills gpu={config.gpu.name} with its weights alone: choose "
            "a larger gpu, more tensor_parallel or a smaller weight_dtype."
        ) from error


def plan_gpu_memory(
    config: Config,
    run_step: RunStep,
    tokens: int,
    rows: int,
    usable_bytes: int,
    sources_bytes: int = 0,
) -> MemoryPlan:
    """Divides a GPU that holds the weights; `tokens` and `rows` are those of the largest step."""
    weights = config.model.weight_bytes(config.weight_dtype, config.tensor_parallel)
    peak = _activation_peak(run_step, tokens, rows)
    stats: dict[str, Any] = torch.cuda.memory_stats_as_nested_dict()
    fixed = stats["allocated_bytes"]["all"]["current"] + peak + sources_bytes
    budget = int(usable_bytes * config.utilization) - fixed
    held_back = 0
    if config.kv_budget is not None:
        budget = wanted_budget(config, budget, sources_bytes)
        held_back = usable_bytes - int((fixed + budget) / config.utilization)
        held_back = held_back // PAGE_BYTES * PAGE_BYTES
    if budget <= 0:
        raise _no_room("there is no room for KV", config, budget, sources_bytes)
    if held_back:
        hold_back(held_back)
    return MemoryPlan(
        usable_bytes=usable_bytes,
        weights_bytes=weights,
        workspace_bytes=stats["requested_bytes"]["all"]["current"] - weights,
        activation_peak_bytes=peak,
        kv_budget_bytes=budget,
        held_back_bytes=held_back,
        sources_bytes=sources_bytes,
        headroom_bytes=usable_bytes - held_back - fixed - budget,
    )


def plan_host_memory(config: Config) -> MemoryPlan:
    """The same division of a GPU of that size, kept in host memory, without activations."""
    usable = config.gpu.usable_bytes
    weights = check_weights_fit(config, usable)
    budget = int(usable * config.utilization) - weights
    if config.kv_budget is not None:
        budget = wanted_budget(config, budget)
    return MemoryPlan(usable, weights, 0, 0, budget, 0)


def _activation_peak(run_step: RunStep, tokens: int, rows: int) -> int:
    """Most that the largest step's activations take, as the allocator counts it."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    try:
        run_step(tokens, rows)
    except torch.OutOfMemoryError as error:
        raise SettingError(
            f"the activations of a step of {tokens} tokens do not fit beside the weights: lower "
            "engine.token_budget or engine.max_num_seqs, or choose a larger gpu."
        ) from error
    peak = torch.cuda.max_memory_allocated() - before
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return peak


def wanted_budget(config: Config, available: int, sources_bytes: int = 0) -> int:
    """`kv_budget` in bytes. Raises SettingError where more than `available` is wanted."""
    assert config.kv_budget is not None
    wanted = parse_bytes("kv_budget", config.kv_budget)
    if wanted > available:
        raise _no_room(
            f"kv_budget={config.kv_budget} does not fit", config, available, sources_bytes
        )
    return wanted


def _no_room(what: str, config: Config, available: int, sources_bytes: int) -> SettingError:
    planners = [name for name in config.sources if sources_bytes and name in SET_ASIDE_BY]
    sources = f" and what sources=[{','.join(planners)}] set aside" if planners else ""
    lower = [*(each for name in planners for each in SET_ASIDE_BY[name]), "engine.token_budget"]
    return SettingError(
        f"{what}: weights and activations of model={config.model.name}{sources} leave "
        f"{available / GIB:.2f} GiB of gpu={config.gpu.name} at utilization={config.utilization}: "
        f"raise utilization, lower {', '.join(lower)} or kv_budget, or choose a larger gpu."
    )
