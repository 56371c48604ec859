"""Jobs for the virtual GPU, which stands in for a card: the model's steps in its allocator."""

from __future__ import annotations

from typing import Any

import torch

from backends.base import Demand, KvHeads, KvLayout, NewTokens
from backends.kernels import decode, prefill, store
from backends.paged import Paged
from bench.engine.engine import Engine
from bench.engine.incidents import IncidentLog
from bench.engine.model_executor import ModelExecutor
from bench.engine.real_model import run, warm_up
from bench.engine.text import Text
from bench.metrics.accounting import MemoryAccount
from bench.model.sampling import Sampler
from bench.model.shape import ModelShape
from bench.model.weights import random_decoder
from tests.bench.engine.lab import cost_model, limits
from workloads.base import Request

BUDGET_BYTES, MAX_MODEL_LEN = 64 << 20, 1024


def small(kv_heads: int) -> ModelShape:
    return ModelShape(
        name="small", layers=2, hidden_size=128, intermediate_size=256, heads=8,
        kv_heads=kv_heads, head_dim=16, vocab_size=256, max_model_len=MAX_MODEL_LEN,
    )  # fmt: skip


def started(shape: ModelShape) -> Paged:
    backend = Paged()
    heads = KvHeads(shape.kv_heads, shape.head_dim, torch.float16)
    token_bytes = shape.kv_bytes_per_token("fp16", 1)
    layout = KvLayout(shape.layers, token_bytes, MAX_MODEL_LEN, BUDGET_BYTES, "cuda", heads)
    backend.start(layout)
    return backend


def refuse_once(payload: dict[str, Any]) -> dict[str, Any]:
    """A step is refused in the middle of its forward pass: the bytes allocated, and the modelled
    seconds so far, whenever it is tried, and how requests ended."""
    shape = small(kv_heads=4)
    decoder = random_decoder(shape, torch.float16, 0, "cuda")
    run(decoder, "cuda", 1, 1, lambda layer, q, k, v: q.contiguous())
    backend = started(shape)
    executor = ModelExecutor(decoder, backend, Sampler(0.0, 0), cost_model(16), "cuda")
    tries: list[tuple[int, float]] = []
    last = decoder.layers[1].feed_forward.down_proj
    forward = last.forward

    def refused(x: torch.Tensor) -> torch.Tensor:
        if len(tries) == 1:
            raise torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate much. There is none."
            )
        return forward(x)

    last.forward = refused
    attention = backend.attention

    def noted(rows: Any) -> Any:
        tries.append((torch.cuda.memory_allocated(), executor.modelled_s))
        return attention(rows)

    backend.attention = noted  # type: ignore[method-assign]
    ended: list[str] = []
    engine = Engine(
        backend,
        executor,
        limits(token_budget=2048),
        MemoryAccount(shape.kv_bytes_per_token("fp16", 1), BUDGET_BYTES),
        IncidentLog(dict),
        MAX_MODEL_LEN,
        lambda sequence, status, cause, end_s: ended.append(status.value),
        lambda request: Text([1] * request.prompt_tokens),
    )
    for number in range(2):
        engine.add(Request(number, 0.0, 500, 1), 0.0)
    while not engine.idle:
        engine.step(0.0)
    return {"tries": tries, "ended": ended, "preemptions": engine.preemptions}


def compile_all(payload: dict[str, Any]) -> dict[str, int]:
    """How many kernels are compiled by the warm-up, and how many more by steps of every number of
    tokens behind short and long contexts."""
    shape = small(payload["kv_heads"])
    decoder = random_decoder(shape, torch.float16, 0, "cuda")
    backend = started(shape)
    warm_up(decoder, backend, "cuda", MAX_MODEL_LEN, longest_step=payload["longest_step"])
    warm = _compiled()
    for context in (3, 700):
        for tokens in (1, 2, 3, 5, 7, 9, 15, 17, 20, 33, 40, 65, 100):
            demand = Demand(context + tokens, 1)
            assert backend.reserve(1, context + tokens, context + tokens, demand)
            attend = backend.attention([NewTokens(1, 0, context, context + tokens)])
            run(decoder, "cuda", tokens, 1, attend)
            backend.free(1)
    return {"warm": warm, "later": _compiled() - warm}


def _compiled() -> int:
    kernels: Any = (decode._decode, decode._join, prefill._prefill, store._store)
    return sum(len(caches[0]) for kernel in kernels for caches in kernel.device_caches.values())
