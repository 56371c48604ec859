"""Hugging Face's caches in PyTorch's caching allocator: jobs for the virtual GPU."""

from __future__ import annotations

import random
from typing import Any

import torch

from backends.base import Demand, KvLayout
from bench.hugging_face.caches import HuggingFaceCaches
from tests.backends.conformance import LAYERS, MAX_MODEL_LEN, TOKEN_BYTES, _check, _Model

MIB = 1 << 20
LIFE_BUDGET = (20 << 20) + 12_345
"""No whole number of anything."""


def started(cache: str, budget_bytes: int, layers: int = LAYERS) -> HuggingFaceCaches:
    backend = HuggingFaceCaches(name=f"transformers_{cache}", cache=cache)
    token_bytes = 2 * layers * 4096
    backend.start(KvLayout(layers, token_bytes, MAX_MODEL_LEN, budget_bytes, "cuda"))
    return backend


def life(payload: dict[str, Any]) -> dict[str, int]:
    """A random life by the contract; how often each verb was refused."""
    draw = random.Random(payload["seed"])
    backend, model = started(payload["cache"], LIFE_BUDGET), _Model()
    assert backend._layout.token_bytes == TOKEN_BYTES
    empty, refused = backend.usage(), {"reserve": 0, "extend": 0}
    for number in range(payload["steps"]):
        verb = draw.choice(["reserve", "reserve", "extend", "extend", "extend", "free"])
        before, which = backend.refusal, draw.randint(1, 300)
        held_bytes = backend.usage().held
        getattr(model, verb)(backend, number, which, draw.randint(1, 200))
        if backend.refusal is not before:
            refused[verb] += 1
            assert backend.refusal.nbytes > 0
            assert backend.usage().held == held_bytes
            if verb == "extend":
                model.free(backend, number, which, 0)  # preempted, as the youngest is
        _check(backend, LIFE_BUDGET, model)
    for sequence in list(model.slots):
        backend.free(sequence)
    assert backend.usage() == empty
    return refused


def growth(payload: dict[str, Any]) -> dict[str, int]:
    """Bytes held by a sequence of 256 tokens in 8 layers, and most of them while it grew by one."""
    backend = started("dynamic", 64 * MIB, layers=8)
    backend.reserve(0, 256, 256, Demand(256, 10))
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    hold = backend.extend(0, 257)
    assert hold is not None
    peak = torch.cuda.max_memory_allocated()
    return {
        "held": backend.usage().held,
        "peak_above": peak - before,
        "copied_bytes": hold.copied_bytes,
        "copies": hold.copies,
    }


def beams(payload: dict[str, Any]) -> list[int]:
    """Slots, bytes copied and copies of two beams that go on from the second one."""
    backend = started("dynamic", 64 * MIB)
    backend.reserve(0, 100, 100, Demand(100, 10, branches=2))
    hold = backend.extend(0, 101, parents=[1, 1])
    assert hold is not None
    backend.check_integrity()
    return [hold.slots, hold.copied_bytes, hold.copies]


def full(payload: dict[str, Any]) -> list[bool]:
    """Whether each of three sequences of max_model_len gets memory that is there for two."""
    two = 2 * MAX_MODEL_LEN * TOKEN_BYTES
    backend = started(payload["cache"], two)
    longest = Demand(MAX_MODEL_LEN, 1)
    granted = [
        backend.reserve(number, MAX_MODEL_LEN, MAX_MODEL_LEN, longest) is not None
        for number in range(3)
    ]
    backend.check_integrity()
    assert backend.usage() == (two, 0, 0, 0, 0)
    return granted
