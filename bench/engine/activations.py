"""A step's activations: which allocations a forward pass makes, in which order, and for how long.

Note [Activations]
The sequence is recorded from a real forward pass of one decoder layer with embedding and logits
(bench/model/decoder.py) by the caching allocator's own history. Each size is linear in the
number of tokens and of sampled rows; three recordings give the coefficients and a fourth checks
them. A step replays the sequence with raw allocations of the same sizes, in the same order.

All layers make the same allocations and each frees what the one before it left, so one layer
leaves the allocator as all of them do. And a replay that called neither cudaMalloc nor cuMemMap
leaves it exactly as it was: segments are the same, every temporary is freed, and free neighbours
merge again. So `Activations.run` skips a shape that was replayed since anything else moved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.device.history import Event, read_history
from bench.model.decoder import Decoder
from bench.model.shape import ModelShape

SHAPES = ((96, 8), (160, 8), (96, 24))  # (tokens, sampled rows)
CHECKED_SHAPE = (200, 40)


@dataclass(frozen=True, slots=True)
class Allocation:
    """Bytes = fixed + per_token x tokens + per_row x sampled rows."""

    fixed: int
    per_token: int
    per_row: int

    def size(self, tokens: int, rows: int) -> int:
        """Bytes for a step's shape."""
        return self.fixed + self.per_token * tokens + self.per_row * rows


@dataclass(frozen=True, slots=True)
class ActivationTrace:
    """`events` are indices into `allocations`: i allocates the i-th, ~i frees it."""

    allocations: tuple[Allocation, ...]
    events: tuple[int, ...]

    def peak_bytes(self, tokens: int, rows: int) -> int:
        """Most bytes requested at a time, before the allocator's rounding."""
        live = peak = 0
        for event in self.events:
            size = self.allocations[event if event >= 0 else ~event].size(tokens, rows)
            live += size if event >= 0 else -size
            peak = max(peak, live)
        return peak


def record(shape: ModelShape, tensor_parallel: int) -> ActivationTrace:
    """Records a forward pass in this process's allocator, which keeps the matrix library's
    workspace afterwards, as in any process that multiplies matrices."""
    torch.set_grad_enabled(False)
    with torch.device("cuda"):
        decoder = Decoder(shape, 1, tensor_parallel).half()
    _forward(decoder, *SHAPES[0])  # takes the workspace, outside of the recording
    recordings = [_history(partial(_forward, decoder, *s)) for s in (*SHAPES, CHECKED_SHAPE)]
    trace = _fit(recordings[:3])
    _check(trace, recordings[3])
    del decoder
    torch.cuda.empty_cache()
    return trace


def _forward(decoder: Decoder, tokens: int, rows: int) -> None:
    ids = torch.empty(tokens, dtype=torch.int64, device="cuda")
    positions = torch.empty_like(ids)
    sampled_rows = torch.empty(rows, dtype=torch.int64, device="cuda")
    decoder(ids, positions, sampled_rows, allocate_attention)


def allocate_attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """What a variable-length attention kernel allocates: its output and the log-sum-exp."""
    torch.empty(q.shape[1], q.shape[0], dtype=torch.float32, device=q.device)
    return torch.empty_like(q, memory_format=torch.contiguous_format)


def _history(forward: Callable[[], None]) -> list[Event]:
    torch.cuda.memory._record_memory_history(context=None, max_entries=100_000)
    try:
        forward()
        entries: list[dict[str, Any]] = torch.cuda.memory._snapshot()["device_traces"][0]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    history = read_history(entries)
    assert history.live == history.unknown == 0, "a forward pass left allocations behind"
    return history.events


def _fit(recordings: list[list[Event]]) -> ActivationTrace:
    events = tuple(event for event, _ in recordings[0])
    for recording in recordings:
        assert tuple(event for event, _ in recording) == events, "the order depends on the shape"
    sizes = [[size for event, size in recording if event >= 0] for recording in recordings]
    allocations = tuple(_linear(*measured) for measured in zip(*sizes, strict=True))
    return ActivationTrace(allocations, events)


def _linear(base: int, more_tokens: int, more_rows: int) -> Allocation:
    (tokens, rows), (tokens_2, _), (_, rows_2) = SHAPES
    per_token = (more_tokens - base) // (tokens_2 - tokens)
    per_row = (more_rows - base) // (rows_2 - rows)
    return Allocation(base - per_token * tokens - per_row * rows, per_token, per_row)


def _check(trace: ActivationTrace, recording: list[Event]) -> None:
    for event, size in recording:
        if event >= 0:
            modelled = trace.allocations[event].size(*CHECKED_SHAPE)
            assert modelled == size, f"allocation {event} takes {size} bytes, not {modelled}"


class ActivationRefusedError(torch.OutOfMemoryError):
    """The allocator refused an activation of `nbytes`; from there on the step needed
    `needed_bytes` more at its peak."""

    def __init__(self, message: str, nbytes: int, needed_bytes: int) -> None:
        super().__init__(message)
        self.nbytes = nbytes
        self.needed_bytes = needed_bytes


class Activations:
    """Replays a trace in the caching allocator. `state` counts what else moved memory there."""

    def __init__(
        self,
        trace: ActivationTrace,
        *,
        ages: bool,
        driver_calls: Callable[[], int],
    ) -> None:
        """`ages` says that the allocator counts how long blocks were unused, so that a replay is
        never without effect (garbage_collection_threshold)."""
        self._trace = trace
        self._steps = [(event, *_sizing(trace, event)) for event in trace.events]
        self._ages = ages
        self._driver_calls = driver_calls
        self._unchanging: set[tuple[int, int]] = set()
        self._state = -1
        self.replays = 0

    def run(self, tokens: int, rows: int, state: int) -> None:
        """A step's activations. Raises ActivationRefusedError with nothing left allocated."""
        shape = tokens, rows
        if state != self._state:
            self._state = state
            self._unchanging.clear()
        if shape in self._unchanging:
            return
        before = self._driver_calls()
        self.replay(*shape)
        if self._driver_calls() != before:
            self._unchanging.clear()
        elif not self._ages:
            self._unchanging.add(shape)

    def replay(self, tokens: int, rows: int) -> None:
        """Allocates and frees what a forward pass of this shape does. Raises as `run` does."""
        self.replays += 1
        allocate = torch._C._cuda_cudaCachingAllocator_raw_alloc
        delete = torch._C._cuda_cudaCachingAllocator_raw_delete
        live: dict[int, int] = {}
        try:
            for event, fixed, per_token, per_row in self._steps:
                if event >= 0:
                    size = fixed + per_token * tokens + per_row * rows
                    live[event] = allocate(size, 0)
                else:
                    delete(live.pop(~event))
        except torch.OutOfMemoryError as error:
            held = sum(self._trace.allocations[event].size(tokens, rows) for event in live)
            needed = max(size, self._trace.peak_bytes(tokens, rows) - held)
            raise ActivationRefusedError(str(error), size, needed) from None
        finally:
            for pointer in live.values():
                delete(pointer)


def _sizing(trace: ActivationTrace, event: int) -> tuple[int, int, int]:
    """The coefficients of what an event allocates or frees: looked up once, not in each replay."""
    allocation = trace.allocations[event if event >= 0 else ~event]
    return allocation.fixed, allocation.per_token, allocation.per_row
