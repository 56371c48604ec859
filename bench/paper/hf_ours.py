"""Our side of the comparison with Hugging Face's caches: the engine over `contiguous`, and two
steps from there towards what a cache of one tensor a layer for a whole batch does.

Runs in processes of their own on the virtual GPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from backends.base import Backend, Demand, KvLayout
from bench.costs import StepWork
from bench.costs.configured import resolve_costs
from bench.engine.activations import allocate_attention
from bench.engine.device_memory import DeviceMemory
from bench.engine.engine import Engine
from bench.engine.executor import Computed, ModelledExecutor
from bench.engine.incidents import IncidentLog
from bench.engine.limits import resolve_limits
from bench.engine.scheduler import Limits, Plan
from bench.engine.sequence import Sequence
from bench.errors import SettingError
from bench.metrics.accounting import MemoryAccount
from bench.metrics.status import Status
from bench.model.decoder import Decoder
from bench.paper.hf_batches import Lengths, Setup, StepMemory, padded, read_setup
from bench.paper.hf_llama import DTYPES
from bench.plugins import make
from workloads.base import Request


class _Started:
    """What a run of the engine starts from."""

    def __init__(self, payload: dict[str, Any]) -> None:
        self.setup: Setup = read_setup(payload)
        config = self.setup.config
        prompts = max(sum(each.prompt_tokens for each in batch) for batch in self.setup.batches)
        config.engine.token_budget = max(prompts, config.max_model_len)  # one step for all of them
        config.engine.max_num_seqs = max(map(len, self.setup.batches))
        self.backend: Backend = make(payload["config"]["backend"], "backend")
        self.limits: Limits = resolve_limits(config, self.backend)
        self.memory = DeviceMemory(config, self.backend, self.limits, "virtual")
        self.steps = StepMemory()

    def result(self) -> dict[str, Any]:
        return {"weights_bytes": self.memory.plan.weights_bytes, "steps": self.steps.steps}


def engine(payload: dict[str, Any]) -> dict[str, Any]:
    """`payload`: read_setup's. The weights' bytes and StepMemory's steps of the engine, which is
    given a batch when the one before it has ended. Raises SettingError."""
    started = _Started(payload)
    runner = _Runner(started)
    for number, batch in enumerate(started.setup.batches):
        runner.run(number, batch)
    return started.result()


class _Runner:
    """The engine, a batch at a time."""

    def __init__(self, started: _Started) -> None:
        config, memory = started.setup.config, started.memory
        self._config = config
        self._steps = started.steps
        self._now = 0.0
        self._sent = 0
        self._engine = Engine(
            started.backend,
            _EveryStep(resolve_costs(config, None), memory.activations, memory.driver_calls),
            started.limits,
            MemoryAccount(memory.token_bytes, memory.plan.kv_budget_bytes),
            IncidentLog(memory.allocator_now, memory.allocator_at_failure),
            config.max_model_len,
            self._ended,
        )

    def run(self, number: int, batch: list[Lengths]) -> None:
        """Sends a batch, and steps until all of it is done. A step is read before memory goes."""
        self._engine.on_step = lambda step: self._steps.read(number)
        for lengths in batch:
            self._engine.add(Request(self._sent, self._now, *lengths), self._now)
            self._sent += 1
        while not self._engine.idle:
            step = self._engine.step(self._now)
            if step is None or len(self._engine.running) not in (0, len(batch)):
                raise self._too_large()
            self._now = step.end_s

    def _ended(self, sequence: Sequence, status: Status, cause: str | None, now: float) -> None:
        if status is not Status.COMPLETED:
            raise self._too_large()

    def _too_large(self) -> SettingError:
        return SettingError(
            f"a batch does not fit the KV budget of gpu={self._config.gpu.name}: choose a larger "
            "gpu, or raise kv_budget or utilization."
        )


class _EveryStep(ModelledExecutor):
    """Replays activations in every step, also where that changes nothing: their peak is read."""

    _step = 0

    def run(self, work: StepWork, plan: Plan, memory_state: int) -> Computed:
        self._step += 1
        return super().run(work, plan, memory_state=self._step)


def whole_batch(payload: dict[str, Any]) -> dict[str, Any]:
    """The same backend and activations, with a batch as one sequence that grows by a token of each
    request: a K and a V tensor a layer for all of it. `payload` and result as of `engine`."""
    started = _Started(payload)
    for number, batch in enumerate(started.setup.batches):
        _grow_whole(started, number, len(batch), *padded(batch))
    return started.result()


def _grow_whole(
    started: _Started, number: int, size: int, prompt_tokens: int, output_tokens: int
) -> None:
    config, memory, backend = started.setup.config, started.memory, started.backend
    longest, budget_bytes = size * config.max_model_len, memory.plan.kv_budget_bytes
    backend.start(
        KvLayout(config.model.layers, memory.token_bytes, longest, budget_bytes, "cuda")
    )  # afresh for each batch, which says how much max_model_len is
    demand = Demand(size * prompt_tokens, size * output_tokens)
    for step in range(output_tokens):
        tokens = size * (prompt_tokens + step)
        hold = backend.extend(0, tokens) if step else backend.reserve(0, tokens, tokens, demand)
        assert hold is not None, "it fitted the engine"
        assert memory.activations is not None, "the GPU is virtual"
        memory.activations.replay(size if step else tokens, size)
        started.steps.read(number)
    backend.free(0)


def concatenated(payload: dict[str, Any]) -> dict[str, Any]:
    """Our decoder's forward pass, in which each layer in turn concatenates K, then V, of the whole
    batch, and lets the old ones go. `payload` and result as of `engine`."""
    torch.set_grad_enabled(False)
    config, batches = read_setup(payload)
    torch.set_default_dtype(DTYPES[config.weight_dtype])
    with torch.device("cuda"):
        decoder = Decoder(config.model, config.model.layers, 1)
    steps = StepMemory()
    for number, batch in enumerate(batches):
        _concatenate(decoder, number, len(batch), *padded(batch), steps)
    weights = sum(each.numel() * each.element_size() for each in decoder.parameters())
    return {"weights_bytes": weights, "steps": steps.steps}


def _concatenate(
    decoder: Decoder,
    number: int,
    size: int,
    prompt_tokens: int,
    output_tokens: int,
    steps: StepMemory,
) -> None:
    cache = _Concatenated(size)
    for step in range(output_tokens):
        token_ids = torch.zeros(
            size if step else size * prompt_tokens, dtype=torch.int64, device="cuda"
        )
        rows = torch.zeros(size, dtype=torch.int64, device="cuda")
        decoder(token_ids, torch.zeros_like(token_ids), rows, cache)
        del token_ids, rows
        steps.read(number)


class _Concatenated:
    """K and V (size, kv_heads, tokens, head_dim) of each layer, grown as DynamicCache does."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._held: dict[tuple[int, str], Tensor] = {}

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self._append((layer, "k"), k)
        self._append((layer, "v"), v)
        return allocate_attention(layer, q, k, v)

    def _append(self, place: tuple[int, str], new: Tensor) -> None:
        new = new.view(self._size, -1, *new.shape[1:]).transpose(1, 2)
        held = [self._held[place]] if place in self._held else []
        self._held[place] = torch.cat([*held, new], dim=2)
