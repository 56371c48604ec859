"""A GPU's memory as vLLM divides it: weights, profiled activations, CUDA graphs, KV blocks."""

from __future__ import annotations

import time
from typing import Any

import torch

from backends.base import KvLayout
from backends.checks import room_for_one
from bench.config import Config
from bench.device.stats import hold_back
from bench.engine.allocator_views import AllocatorViews
from bench.engine.device_memory import check_card
from bench.engine.memory_plan import (
    PAGE_BYTES,
    MemoryPlan,
    check_weights_fit,
    wanted_budget,
)
from bench.engine.scheduler import Limits
from bench.engine.sequence import Sequence
from bench.metrics.allocator import AllocatorProbe
from bench.vllm.pool import VllmPool
from bench.vllm.python import version_here
from bench.vllm.session import VllmSession


class VllmMemory(AllocatorViews):
    """The device's memory with vLLM started in it."""

    def __init__(self, config: Config, pool: VllmPool, limits: Limits) -> None:
        """Raises SettingError for what vLLM cannot start with, BackendError for a `kv_budget` that
        holds too few blocks."""
        super().__init__(AllocatorProbe())
        check_card(config)
        free, self._total_bytes = torch.cuda.mem_get_info()
        self._before_launch_bytes = beside_allocator_bytes()
        left = int(free * config.utilization) - check_weights_fit(config, free)
        self.token_bytes = config.model.kv_bytes_per_token(config.kv_dtype, 1)
        block_bytes = pool.block_tokens * self.token_bytes
        wanted, blocks = None, None
        if config.kv_budget is not None:
            wanted = wanted_budget(config, left)
            blocks = _blocks_of(wanted, config, block_bytes)
            room_for_one(wanted, blocks, pool.block_tokens, config.max_model_len)
        began_s = time.monotonic()
        self.session = VllmSession(config, pool, limits, blocks)
        self._start_s = time.monotonic() - began_s
        self._blocks = pool.blocks.usable + 1
        budget = wanted or self._blocks * block_bytes
        pool.start(
            KvLayout(config.model.layers, self.token_bytes, config.max_model_len, budget, "cuda")
        )
        self._found = self.session.worker_facts()
        self.plan = self._divide(config, free, budget, self._blocks * block_bytes)
        self._started = self._taken()
        self.start()

    def _divide(self, config: Config, usable: int, budget: int, pool_bytes: int) -> MemoryPlan:
        """What became of a card of which vLLM, started, has `pool_bytes` of blocks. Raises
        SettingError where `kv_budget` left less room beside them than utilization says."""
        outside_graphs, self._graphs_bytes = _in_pools()
        weights, peak = self._found["weights_bytes"], self._found["activation_peak_bytes"]
        workspace = max(0, outside_graphs - weights - pool_bytes)
        fixed = weights + workspace + peak + self._graphs_bytes
        held_back = 0
        if config.kv_budget is not None:
            wanted_budget(config, int(usable * config.utilization) - fixed)
            held_back = _hold_back(usable, fixed + budget, config.utilization)
        return MemoryPlan(
            usable_bytes=usable,
            weights_bytes=weights,
            workspace_bytes=workspace,
            activation_peak_bytes=peak,
            kv_budget_bytes=budget,
            held_back_bytes=held_back,
            headroom_bytes=usable - held_back - fixed - budget,
        )

    def answer(self, sequence: Sequence) -> list[int]:
        """What vLLM said in the last step."""
        return list(self.session.said[sequence.id])

    def facts(self, config: Config) -> dict[str, Any]:
        return super().facts(config) | {
            "vllm": {
                "version": version_here(),
                "mode": config.vllm.mode,
                "num_gpu_blocks": self._blocks,
                "graph_pool_bytes": self._graphs_bytes,
                "graphs_estimate_bytes": self._found["graphs_estimate_bytes"],
                "graphs": self._found["graphs"],
                "start_s": self._start_s,
                "card": self._card_facts(),
            }
        }

    def _card_facts(self) -> dict[str, Any]:
        """Readings of the card: before a kernel was launched, when vLLM first looked, when it had
        started."""
        return {
            "total_bytes": self._total_bytes,
            "before_launch": {"beside_allocator_bytes": self._before_launch_bytes},
            "first_reading": {"beside_allocator_bytes": self._found["beside_allocator_bytes"]},
            "started": self._started,
        }

    def _taken(self) -> dict[str, int]:
        return {
            "reserved_bytes": torch.cuda.memory_reserved(),
            "beside_allocator_bytes": beside_allocator_bytes() - self.plan.held_back_bytes,
        }

    def counted_by_engine(self) -> dict[str, Any]:
        """What vLLM itself counted, beside what was counted by following it, and a last reading of
        the card."""
        metrics = self.session.metrics()
        names = ("num_preemptions", "prefix_cache_queries", "prefix_cache_hits")
        counted = {name: int(metrics[name]) for name in names if name in metrics}
        return {"vllm_counted": counted, "vllm_card_at_end": self._taken()}


def _hold_back(usable: int, used: int, utilization: float) -> int:
    """What of the rest of the card another tenant holds, as for any engine with a `kv_budget`
    (bench/engine/memory_plan.py): of what is left `used` is the share that utilization says."""
    free, _ = torch.cuda.mem_get_info()
    n_bytes = min(usable - int(used / utilization), free) // PAGE_BYTES * PAGE_BYTES
    if n_bytes <= 0:
        return 0
    hold_back(n_bytes)
    return n_bytes


def beside_allocator_bytes() -> int:
    """What is taken of the card outside PyTorch's allocator, by this process and by others."""
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def _blocks_of(budget: int, config: Config, block_bytes: int) -> int:
    """As many blocks as a `paged` pool makes of a budget: a layer's K and V are whole pages."""
    per_layer = budget // config.model.layers // PAGE_BYTES * PAGE_BYTES
    return per_layer // (block_bytes // config.model.layers)


def _in_pools() -> tuple[int, int]:
    """Bytes allocated outside pools of CUDA graphs, and reserved in these."""
    cuda: Any = torch.cuda
    outside = inside = 0
    for segment in cuda.memory_snapshot():
        if tuple(segment["segment_pool_id"]) == (0, 0):
            outside += segment["allocated_size"]
        else:
            inside += segment["total_size"]
    return outside, inside
