"""The five-point debugging pass: an engine is taken through a server's life and its allocator is
read at five points. In a process of its own on the virtual GPU.

The last is read by PyTorch's own observer of refused allocations, in the middle of the operation
that failed: afterwards, what that operation had taken is free again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from bench.config import from_container
from bench.device.stats import AllocatorReader
from bench.engine.engine import Engine, Step
from bench.plugins import make
from bench.run import Run
from workloads.base import Request, Workload

_bindings: Any = torch._C

INIT, TWO, ENDED, MIX, FAILING = "init", "two", "ended", "mix", "failing"
SHORT = (64, 64)
LONG_OUTPUT = 256
TOKENS_SAID = 32
"""Of both requests, when they are looked at."""


def measure(payload: dict[str, Any]) -> dict[str, Any]:
    """`payload`: a run's, `mix_requests` (served as they come) and `crowd_requests` (all at once).
    Leaves the run's files and returns what the allocator held at each of the points, `wanted_bytes`
    of the operation that failed (None: none did) and the step at which least was free."""
    config = from_container(payload["config"])
    workload: Workload = make(payload["config"]["workload"], "workload")
    listener = Run(config, payload, time.monotonic(), {"workload": workload.name, "loop": "open"})
    life = _Life(listener.engine, config.max_model_len)
    requests = workload.requests(config.seed)

    def drive(engine: Engine, on_tick: Callable[[float], None]) -> float:
        life.two_requests()
        life.mix(_first(requests, payload["mix_requests"]))
        life.crowd(_first(requests, payload["crowd_requests"]))
        engine.stop(life.now)
        return life.now

    listener.go(drive)
    return {"points": life.points, "wanted_bytes": life.wanted_bytes, "fullest": life.fullest}


def _first(requests: Iterable[Request], count: int) -> list[Request]:
    return [request for _, request in zip(range(count), requests, strict=False)]


class _Life:
    """What becomes of an engine, and what its allocator holds meanwhile."""

    def __init__(self, engine: Engine, max_model_len: int) -> None:
        self.now = 0.0
        self.wanted_bytes: int | None = None
        self.fullest: dict[str, int] | None = None
        self._engine = engine
        self._max_model_len = max_model_len
        self._sent = 0
        self._reader = AllocatorReader()
        self.points = {INIT: self._read()}
        self._on_step = engine.on_step
        engine.on_step = self._watch
        _bindings._cuda_attach_out_of_memory_observer(self._refused)

    def two_requests(self) -> None:
        """A short and a long one, side by side."""
        long = (self._max_model_len - LONG_OUTPUT, LONG_OUTPUT)
        both = [self._send(*SHORT), self._send(*long)]
        while min(sequence.generated for sequence in both) < TOKENS_SAID:
            self._step()
        self.points[TWO] = self._read()
        self._serve()
        self.points[ENDED] = self._read()

    def mix(self, requests: list[Request]) -> None:
        """Requests of many lengths, each at its time after the first."""
        start_s = self.now - (requests[0].scheduled_s if requests else 0.0)
        for request in requests:
            while self.now < start_s + request.scheduled_s and not self._engine.idle:
                self._step()
            self.now = max(self.now, start_s + request.scheduled_s)
            self._send(request.prompt_tokens, request.output_tokens)
        self._serve()
        self.points[MIX] = self._read()

    def crowd(self, requests: list[Request]) -> None:
        """More than fits, all at once, until the allocator refuses something."""
        self.fullest = None
        for request in requests:
            self._send(request.prompt_tokens, request.output_tokens)
        while FAILING not in self.points and not self._engine.idle:
            self._step()

    def _send(self, prompt_tokens: int, output_tokens: int) -> Any:
        request = Request(self._sent, self.now, prompt_tokens, output_tokens)
        self._sent += 1
        return self._engine.add(request, self.now)

    def _serve(self) -> None:
        while not self._engine.idle:
            self._step()

    def _step(self) -> None:
        step = self._engine.step(self.now)
        if step is not None:
            self.now = step.end_s

    def _watch(self, step: Step) -> None:
        """Keeps the state in which least was free, before finished sequences go."""
        if self._on_step is not None:
            self._on_step(step)
        stats = self._reader.read()
        if self.fullest is None or stats.total_free_bytes < self.fullest["free_bytes"]:
            self.fullest = self._read()

    def _refused(self, device: int, wanted: int, allocated: int, free: int) -> None:
        if FAILING not in self.points:
            self.wanted_bytes = wanted
            self.points[FAILING] = self._read()

    def _read(self) -> dict[str, int]:
        stats = self._reader.read()
        return {
            "requested": stats.requested_bytes,
            "allocated": stats.allocated_bytes,
            "reserved": stats.reserved_bytes,
            "largest_free": self._reader.largest_free_bytes(),
            "free_bytes": stats.total_free_bytes,
        }
