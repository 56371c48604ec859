"""What engine=vllm puts in the place of fragbench's scheduler, memory and computation."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import cast

from backends.base import Backend
from bench.config import Config
from bench.costs.configured import resolve_costs
from bench.engine.executor import ModelledExecutor
from bench.engine.scheduler import Limits
from bench.parts import Parts
from bench.sources.active import Sources
from bench.token_source import TextSource
from bench.vllm.executor import MeasuredExecutor
from bench.vllm.memory import VllmMemory
from bench.vllm.pool import VllmPool
from bench.vllm.scheduler import VllmScheduler


def vllm_parts(
    config: Config, backend: Backend, limits: Limits, sources: Sources, device: str
) -> Parts:
    """vLLM, started. Raises SettingError for what it cannot start with."""
    memory = VllmMemory(config, cast(VllmPool, backend), limits)
    executor = (MeasuredExecutor if device == "cuda" else ModelledExecutor)(
        resolve_costs(config, backend.block_tokens),
        None,
        memory.driver_calls,
        answer=memory.answer,
    )
    return Parts(
        backend,
        replace(limits, branches=False),
        memory,
        executor,
        sources,
        TextSource(config.model.vocab_size),
        partial(VllmScheduler, session=memory.session),
    )
