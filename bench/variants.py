"""Cells run more than once: with other seeds, and with other constants of the cost model."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from bench.costs.factors import CONSTANTS, OF_A_GPU
from bench.errors import SettingError

LESS, MORE = 0.7, 1.3
"""What `sensitivity=true` multiplies each constant by."""

WITHOUT_PAGES = ("backends.contiguous.", "backends.bucketed.", "backends.paged",
                 "bench.hugging_face.", "bench.vllm.")  # fmt: skip
"""Backends that leave the driver's mapping of pages to PyTorch."""
PAGED_ATTENTION = ("paged_attention_fixed", "paged_attention_block_tokens")
BETWEEN_GPUS = ("interconnect_efficiency", "all_reduce_latency_us")


def variants(config: dict[str, Any]) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """The runs that a resolved configuration asks for, each with what sets it apart, such as
    `seed=3,cost_factors.cuda_free_us=0.7`, None for a run of its own.

    `repeats` are of seeds that follow one another: the same traffic for every backend. Raises
    SettingError.
    """
    repeats, sensitivity = config["repeats"], config["sensitivity"]
    if repeats < 1:
        raise SettingError(
            f"repeats={repeats} is out of range: give how often each run is made, with one seed "
            "after the other, from 1 up."
        )
    for repeat in range(repeats):
        for factors in _factors(config) if sensitivity else [{}]:
            own = copy.deepcopy(config)
            own |= {
                "seed": config["seed"] + repeat,
                "repeats": 1,
                "sensitivity": False,
                "cost_factors": config["cost_factors"] | factors,
            }
            apart = [f"seed={own['seed']}"] if repeats > 1 else []
            apart += [f"cost_factors.{name}={factor}" for name, factor in factors.items()]
            apart += ["cost_factors=none"] if sensitivity and not factors else []
            yield ",".join(apart) or None, own


def check_single(config: dict[str, Any]) -> None:
    """Raises SettingError where another command than `run` and `matrix` is asked to do its work
    again."""
    for name, one in (("repeats", 1), ("sensitivity", False)):
        if config[name] != one:
            raise SettingError(
                f"{name}={str(config[name]).lower()} is for `fragbench run` and `fragbench "
                "matrix` alone: leave it out here."
            )


def _factors(config: dict[str, Any]) -> Iterator[dict[str, float]]:
    """No change, and each constant that can matter to the run, lower and higher."""
    if config["device"] in ("cpu", "cuda"):
        raise SettingError(
            f"sensitivity=true varies modelled time, and device={config['device']} measures: "
            "leave it out, or use device=virtual."
        )
    yield {}
    for name in CONSTANTS:
        if _matters(name, config):
            yield {name: LESS}
            yield {name: MORE}


def _matters(name: str, config: dict[str, Any]) -> bool:
    backend = config["backend"]
    if name in PAGED_ATTENTION:
        return "block_size" in backend
    if name in BETWEEN_GPUS:
        return bool(config["tensor_parallel"] > 1)
    if name.startswith("cu_mem_"):
        conf = f"{backend.get('alloc_conf')},{config['alloc_conf']}"
        return "expandable_segments" in conf or not backend["_target_"].startswith(WITHOUT_PAGES)
    group = config["gpu"] if name in OF_A_GPU else config["costs"]
    return bool(group[name])
