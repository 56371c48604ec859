"""The cost model of a configuration."""

from __future__ import annotations

from bench.config import Config
from bench.costs.model import CostModel


def resolve_costs(config: Config, kv_block_tokens: int | None) -> CostModel:
    """What steps take, of a backend with blocks of so many tokens (None: no blocks)."""
    return CostModel(
        shape=config.model,
        gpu=config.gpu,
        weight_dtype=config.weight_dtype,
        kv_dtype=config.kv_dtype,
        tensor_parallel=config.tensor_parallel,
        constants=config.costs,
        kv_block_tokens=kv_block_tokens,
    )
