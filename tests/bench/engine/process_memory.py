"""What a process that serves from paged blocks on the CPU takes; prints it as JSON.

A process of its own: its peak is nobody else's.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from backends.base import KvHeads, KvLayout
from backends.paged import Paged
from bench.engine.engine import Engine
from bench.engine.incidents import IncidentLog
from bench.engine.model_executor import ModelExecutor
from bench.engine.real_model import run_without_memory
from bench.engine.text import Text
from bench.metrics.accounting import MemoryAccount
from bench.model.decoder import Decoder
from bench.model.sampling import Sampler
from bench.model.weights import random_decoder
from bench.packaged import load_model
from tests.bench.engine.lab import cost_model, limits
from workloads.base import Request

SHAPE = load_model("tiny")
BUDGET_BYTES, MAX_MODEL_LEN = 32 << 20, 4096
# 4 x 2,030 of the 8,192 tokens that the budget holds, all there at once.
PROMPTS, PROMPT_TOKENS, OUTPUT_TOKENS, STEP_TOKENS = 4, 2010, 20, 1024


def main() -> None:
    torch.set_num_threads(1)
    decoder = random_decoder(SHAPE, torch.float32, seed=0)
    run_without_memory(decoder, "cpu", tokens=64, rows=4)  # loads libraries
    before = _peak_bytes(reset=True)
    backend, touched = _serve(decoder)
    growth = _peak_bytes() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        _serve(decoder)
    pool = sum(each.nbytes for each in backend.kv)
    activations = _most_live_bytes(profiled) - pool
    print(json.dumps({"pool": pool, "touched": touched, "activations": activations,
                      "growth": growth}))  # fmt: skip


def _serve(decoder: Decoder) -> tuple[Paged, int]:
    """Serves prompts that fill the pool; the bytes of blocks that a sequence held at any time."""
    backend = Paged()
    heads = KvHeads(SHAPE.kv_heads, SHAPE.head_dim, torch.float32)
    token_bytes = SHAPE.kv_bytes_per_token("fp32", 1)
    layout = KvLayout(SHAPE.layers, token_bytes, MAX_MODEL_LEN, BUDGET_BYTES, "cpu", heads)
    backend.start(layout)
    engine = Engine(
        backend,
        ModelExecutor(decoder, backend, Sampler(0.0, seed=0), cost_model(), "cpu"),
        limits(prefill="chunked", token_budget=STEP_TOKENS),
        MemoryAccount(token_bytes, BUDGET_BYTES),
        IncidentLog(dict),
        MAX_MODEL_LEN,
        lambda sequence, status, cause, end_s: None,
        lambda request: Text(range(request.prompt_tokens)),
    )
    for number in range(PROMPTS):
        engine.add(Request(number, 0.0, PROMPT_TOKENS, OUTPUT_TOKENS), 0.0)
    held: set[int] = set()
    while not engine.idle:
        engine.step(0.0)
        held.update(*(backend.block_table(sequence.id) for sequence in engine.running))
    return backend, len(held) * backend.block_tokens * token_bytes


def _peak_bytes(*, reset: bool = False) -> int:
    """Most memory that the process ever had resident, since the last reset (man 5 proc)."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def _most_live_bytes(profiled: profile) -> int:
    """Most bytes of tensors at a time, temporary ones within operators included, by PyTorch's
    allocator for the CPU; those from before do not count."""
    assert profiled.profiler is not None
    assert profiled.profiler.kineto_results is not None
    events = profiled.profiler.kineto_results.events()
    changes = [(each.start_ns(), each.nbytes()) for each in events if each.name() == "[memory]"]
    live = most = 0
    for _, nbytes in sorted(changes, key=lambda change: change[0]):
        live += nbytes
        most = max(most, live)
    return most


if __name__ == "__main__":
    main()
