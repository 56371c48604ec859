"""The cost model of a configuration."""

from __future__ import annotations

from bench.config import Config
from bench.costs.factors import scaled
from bench.costs.model import CostModel


def resolve_costs(config: Config, kv_block_tokens: int | None) -> CostModel:
    """What steps take, of a backend with blocks of so many tokens (None: no blocks)."""
    gpu, constants = scaled(config.gpu, config.costs, config.cost_factors)
    return CostModel(
        shape=config.model,
        gpu=gpu,
        weight_dtype=config.weight_dtype,
        kv_dtype=config.kv_dtype,
        tensor_parallel=config.tensor_parallel,
        constants=constants,
        kv_block_tokens=kv_block_tokens,
    )
