"""What a forward pass and its replay do to the caching allocator: jobs for the virtual GPU."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import pytest
import torch

from backends.base import Backend, KvLayout
from backends.bucketed import Bucketed
from backends.contiguous import Contiguous
from backends.paged import Paged
from bench.device.stats import AllocatorReader, DriverCalls, hold_back
from bench.engine.activations import Activations, _forward, _history, record
from bench.engine.engine import ActivationsDoNotFitError
from bench.model.decoder import Decoder
from bench.packaged import load_model
from tests.bench.engine.lab import SHAPE, Lab, limits

MIB = 1 << 20
PAGE_BYTES = 2 << 20
NEW_SHAPES = ((1, 1), (3, 3), (17, 0), (250, 250), (2048, 256), (2049, 1), (8192, 5))


def _decoder(shape: Any, layers: int, tensor_parallel: int) -> Decoder:
    torch.set_grad_enabled(False)
    with torch.device("cuda"):
        return Decoder(shape, layers, tensor_parallel).half()


def new_shapes(payload: dict[str, Any]) -> int:
    """Records a model, then compares with forward passes of other shapes, event by event."""
    shape = load_model(payload["model"])
    trace = record(shape, payload["tensor_parallel"])
    decoder = _decoder(shape, 1, payload["tensor_parallel"])
    for tokens, rows in NEW_SHAPES:
        made = _history(partial(_forward, decoder, tokens, rows))
        sizes = [trace.allocations[max(e, ~e)].size(tokens, rows) for e in trace.events]
        # PyTorch's allocator is not asked for nothing, and does nothing when it is.
        expected = [(event >= 0, n) for event, n in zip(trace.events, sizes, strict=True) if n]
        assert [(event >= 0, n) for event, n in made] == expected, (tokens, rows)
        if 0 not in sizes:
            assert tuple(event for event, _ in made) == trace.events
    return len(NEW_SHAPES)


def peaks(payload: dict[str, Any]) -> list[list[int]]:
    """The trace's peak beside that of a forward pass, as requested and as allocated, in bytes."""
    shape = load_model("llama3_8b")
    trace = record(shape, 1)
    decoder = _decoder(shape, 1, 1)
    found = []
    for tokens, rows in ((1, 1), (256, 256), (2048, 64), (8192, 1)):
        before = torch.cuda.memory_stats()
        torch.cuda.reset_peak_memory_stats()
        _forward(decoder, tokens, rows)
        after = torch.cuda.memory_stats()
        grown = [
            after[f"{count}_bytes.all.peak"] - before[f"{count}_bytes.all.current"]
            for count in ("requested", "allocated")
        ]
        found.append([trace.peak_bytes(tokens, rows), *grown])
    return found


def allocator_state() -> Any:
    """All segments with their blocks: where, how long, in use or not."""
    segments = [
        [s["address"], s["total_size"], [[b["size"], b["state"]] for b in s["blocks"]]]
        for s in torch.cuda.memory_snapshot()
    ]
    stats = AllocatorReader().read()
    return [sorted(segments), stats.peak_reserved_bytes, stats.peak_allocated_bytes]


def state_after_layers(payload: dict[str, Any]) -> Any:
    """The allocator after a few steps of a model of `layers` layers; null replays the trace."""
    shape = load_model("llama2_7b")
    trace = record(shape, 1)
    decoder = _decoder(shape, 4, 1)  # the same weights in any case
    weights = decoder.layers
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    replay = Activations(trace, ages=False, driver_calls=lambda: 0).replay
    for tokens, rows in ((700, 30), (33, 33), (2048, 1), (64, 64)):
        if payload["layers"] is None:
            replay(tokens, rows)
            continue
        decoder.layers = torch.nn.ModuleList(weights[: payload["layers"]])
        _forward(decoder, tokens, rows)
    return allocator_state()


def _activations(*, ages: bool = False) -> Activations:
    calls = DriverCalls()
    trace = record(SHAPE, 1)
    total = lambda: sum(calls.read().values())  # noqa: E731
    return Activations(trace, ages=ages, driver_calls=total)


def memory(payload: dict[str, Any]) -> list[int]:
    """Replays made after each step: what did not move memory is not done twice."""
    activations = _activations(ages=payload["ages"])
    torch.cuda.empty_cache()
    replays = []
    for tokens, rows, state in (
        (64, 8, 0),  # takes segments from the driver
        (64, 8, 0),  # takes none
        (64, 8, 0),
        (32, 8, 0),  # another shape, within the same segments
        (32, 8, 0),
        (64, 8, 0),
        (64, 8, 1),  # something else moved memory
        (64, 8, 1),
        (4096, 8, 1),  # takes more segments
        (64, 8, 1),  # so that this may now differ
        (64, 8, 1),
    ):
        activations.run(tokens, rows, state)
        replays.append(activations.replays)
    return replays


def out_of_memory(payload: dict[str, Any]) -> dict[str, Any]:
    """A replay that fails on its way, and one that fits after it."""
    activations = _activations()
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    hold_back(free - 40 * MIB)
    before = torch.cuda.memory_allocated()
    with pytest.raises(torch.OutOfMemoryError):
        activations.run(8192, 8, 0)
    left = torch.cuda.memory_allocated() - before
    activations.run(64, 8, 0)
    return {"left": left, "replays": activations.replays}


def _room_for(activations: Activations, tokens: int, rows: int) -> int:
    """Bytes that the driver must have for a step of this shape."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    activations.replay(tokens, rows)
    room = torch.cuda.max_memory_reserved() - before
    torch.cuda.empty_cache()
    return room


def engine_out_of_activations(payload: dict[str, Any]) -> dict[str, Any]:
    """Two prompts of 4,000 tokens in a step, on a card with room for `fits` of 8,000 tokens."""
    activations = _activations()
    room = _room_for(activations, payload["fits"], 2)
    backend = Paged()
    budget, token_bytes = 64 * MIB, 4096
    backend.start(KvLayout(1, token_bytes, 8192, budget, "cuda"))
    free, _ = torch.cuda.mem_get_info()
    hold_back(free - room)
    calls = DriverCalls()
    lab = Lab(backend, budget, token_bytes, limits(prefill="whole"), max_model_len=8192,
              activations=activations, driver_calls=calls.read)  # fmt: skip
    lab.send(*[(4000, 3)] * payload["requests"])
    before = activations.replays
    found: dict[str, Any] = {"error": None}
    try:
        lab.step()
    except ActivationsDoNotFitError as error:
        found["error"] = str(error)
    found |= {
        "replays": activations.replays - before,
        "running": lab.running,
        "waiting": lab.waiting,
        "tokens": [step.tokens for step in lab.steps],
        "bound": [step.memory_bound for step in lab.steps],
        "preempted": [step.preempted for step in lab.steps],
        "preemptions": lab.engine.preemptions,
        "incidents": [
            [i["kind"], i["preempted_request"], "out of memory" in i["error"]]
            for i in lab.engine.incidents.drain()
        ],
    }
    if found["error"] is None:
        lab.run()
    lab.engine.stop(lab.now)
    found["ended"] = [[e.sequence.id, e.status.value, e.sequence.generated] for e in lab.ends]
    return found


STRATEGIES = {
    "bucketed": lambda: Bucketed(buckets=[64, 128, 256, 512, 1024]),
    "contiguous_oracle": lambda: Contiguous(reserve="oracle"),
    "contiguous_grow": lambda: Contiguous(reserve="grow"),
    "paged": Paged,
}


def workload(payload: dict[str, Any]) -> dict[str, Any]:
    """Forty requests on a tight card, with replays skipped where they change nothing or not."""
    activations = _activations(ages=payload["ages"])
    torch.cuda.empty_cache()
    backend: Backend = STRATEGIES[payload["strategy"]]()
    budget, layers, token_bytes = 96 * MIB, 2, 32 << 10
    layout = KvLayout(layers, token_bytes, 1024, budget, "cuda")
    free, _ = torch.cuda.mem_get_info()
    hold_back((free - budget - payload["slack_mib"] * MIB) // PAGE_BYTES * PAGE_BYTES)
    backend.start(layout)
    calls = DriverCalls()
    lab = Lab(
        backend, budget, token_bytes, limits(prefill=backend.prefill, token_budget=1024),
        max_model_len=1024, activations=activations, driver_calls=calls.read,
    )  # fmt: skip
    for number in range(40):  # prompts of 30 to 722 tokens, outputs of 5 to 104, all in order
        lab.add(30 + number * 97 % 700, 5 + number * 31 % 100)
    with contextlib.suppress(ActivationsDoNotFitError):
        lab.run()
    lab.engine.stop(lab.now)
    stats = AllocatorReader().read()
    return {
        "replays": activations.replays,
        "steps": len(lab.steps),
        "retries": stats.num_alloc_retries,
        "same": [
            allocator_state(), stats.num_alloc_retries, stats.num_ooms, calls.read(), lab.now,
            [[e.sequence.id, e.status.value, e.end_s, e.sequence.preemptions] for e in lab.ends],
        ],
    }  # fmt: skip
