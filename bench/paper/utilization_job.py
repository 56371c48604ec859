"""A run in which, again and again while requests wait, the longest prefill's activations are tried.
In a process of its own on the virtual GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from bench.config import from_container
from bench.device.stats import hold_back
from bench.engine.driver import drive
from bench.engine.engine import Step
from bench.engine.users import Users
from bench.plugins import make
from bench.run import Run
from workloads.base import Workload


def run(payload: dict[str, Any]) -> dict[str, int]:
    """`payload`: a run's, `every_steps`, and `set_aside`. Leaves the run's files, and returns how
    often the longest prefill was `tried` and `refused`.

    The engine sets the peak of activations aside before it divides the card. Where that is not to
    be, as much is held back from PyTorch, so that what `utilization` leaves is all they have.
    """
    config = from_container(payload["config"])
    workload: Workload = make(payload["config"]["workload"], "workload")
    listener = Run(config, payload, time.monotonic(), {"workload": workload.name, "loop": "open"})
    if not payload["set_aside"]:
        hold_back(listener.memory.plan.activation_peak_bytes)
    whole = (config.engine.prefill or listener.engine.memory.backend.prefill) == "whole"
    longest = LongestPrefill(listener, whole, payload["every_steps"])
    users = Users(listener.engine, workload.requests(config.seed), workload.closed_loop)
    listener.go(partial(drive, users=users, stop_after_s=None))
    return {"tried": longest.tried, "refused": longest.refused}


class LongestPrefill:
    """Tries, at every so-manieth step behind which a request waits, the activations of a step with
    the longest prefill that is computed at once, beside all that decode.

    It asks at the end of a step, before finished sequences give back their memory, and takes no
    KV: the KV budget is what such a step's activations have to fit beside.
    """

    def __init__(self, listener: Run, whole: bool, every_steps: int) -> None:
        """With `whole` prompts the running sequences' tokens come on top of the prompt's."""
        activations = listener.memory.activations
        assert activations is not None, "the virtual GPU models activations"
        self.tried = self.refused = 0
        self._activations = activations
        self._engine = listener.engine
        self._budget_tokens = listener.engine.token_budget
        self._whole = whole
        self._every_steps = every_steps
        self._steps = 0
        self._on_step: Callable[[Step], None] | None = self._engine.on_step
        self._engine.on_step = self._watch

    def _watch(self, step: Step) -> None:
        if self._on_step is not None:
            self._on_step(step)
        if self._engine.waiting_count:
            self._steps += 1
            if self._steps % self._every_steps == 0:
                self._try()

    def _try(self) -> None:
        rows = len(self._engine.running)
        tokens = self._budget_tokens + (rows - 1 if self._whole else 0)
        self.tried += 1
        try:
            # A state of its own, so that it is really tried, and the next step's is, too.
            self._activations.run(tokens, rows, -1 - self.tried)
        except torch.OutOfMemoryError:
            self.refused += 1
