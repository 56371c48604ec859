"""What a run's engine is made of, by the engine that a configuration asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from backends.base import Backend, TokenIds
from bench.config import Config
from bench.costs.configured import resolve_costs
from bench.device.allocator_start import start_allocator
from bench.engine.allocator_views import AllocatorViews
from bench.engine.device_memory import DeviceMemory
from bench.engine.engine import MakeScheduler
from bench.engine.executor import Answer, Executor, ModelledExecutor
from bench.engine.limits import resolve_limits, resolve_padding
from bench.engine.model_executor import ModelExecutor
from bench.engine.one_at_a_time import OneAtATimeExecutor
from bench.engine.scheduler import Limits
from bench.model.sampling import Sampler
from bench.plugins import make, make_all
from bench.sources.active import Sources
from bench.token_source import TextSource, token_source
from workloads.base import Request


@dataclass(slots=True)
class Parts:
    """`tokens` says what a request's tokens are, None where nobody looks at them;
    `make_scheduler` is None for our own."""

    backend: Backend
    limits: Limits
    memory: AllocatorViews
    executor: Executor
    sources: Sources
    tokens: Callable[[Request], TokenIds] | None
    make_scheduler: MakeScheduler | None = None


def make_parts(
    config: Config, sections: dict[str, Any], device: str, answer: Answer | None = None
) -> Parts:
    """Sets memory up and makes all that the engine needs. `sections` is the configuration as plain
    data; `answer` gives the ids that a model that is not run says, if somebody wants to know.

    Raises SettingError or BackendError.
    """
    backend: Backend = make(sections["backend"], "backend")
    sources = Sources(make_all(sections["sources"], "sources"))
    limits = resolve_limits(config, backend)
    if device != "cpu":
        start_allocator()
    if config.engine.name == "vllm":
        from bench.vllm.parts import vllm_parts  # of an environment that has it

        return vllm_parts(config, backend, limits, sources, device)
    memory = DeviceMemory(config, backend, limits, device, sources)
    executor = _make_executor(config, backend, limits, memory, answer)
    tokens = _token_source(config, backend, memory)
    return Parts(backend, limits, memory, executor, sources, tokens)


def _make_executor(
    config: Config, backend: Backend, limits: Limits, memory: DeviceMemory, answer: Answer | None
) -> Executor:
    costs = resolve_costs(config, backend.block_tokens)
    padding = resolve_padding(config, backend, limits)
    if memory.decoder is None:
        parts = costs, memory.activations, memory.driver_calls, padding, answer
        if not config.engine.one_at_a_time:
            return ModelledExecutor(*parts)
        return OneAtATimeExecutor(*parts, reads_all_slots=config.engine.cache == "static")
    sampler = Sampler(config.engine.temperature, config.seed)
    return ModelExecutor(
        memory.decoder, backend, sampler, costs, memory.device, padding, memory.driver_calls
    )


def _token_source(
    config: Config, backend: Backend, memory: DeviceMemory
) -> Callable[[Request], TokenIds] | None:
    vocab_size = config.model.vocab_size
    if memory.decoder is not None:
        return TextSource(vocab_size)
    return partial(token_source, vocab_size=vocab_size) if backend.caches_prefixes else None
