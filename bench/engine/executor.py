"""What a step's computation does to memory and time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from bench.costs import CostModel, StepWork
from bench.engine.activations import Activations
from bench.engine.padding import Padding


class Executor(Protocol):
    """Runs a step's computation."""

    def run(self, work: StepWork, memory_state: int) -> float:
        """Seconds the step takes. `memory_state` differs when device memory moved in between.

        Raises torch.OutOfMemoryError when the step's activations do not fit; it can be run again.
        """
        ...

    def copy_s(self, nbytes: int, copies: int) -> float:
        """Seconds to copy KV between buffers, `nbytes` in all."""
        ...


class ModelledExecutor:
    """Activations are real allocations, time is the cost model's; both are of the padded step.

    `driver_calls` reads how often the driver was called, by kind, since the process began: calls
    made for KV memory and for activations alike are charged to the step they happened in.
    """

    def __init__(
        self,
        costs: CostModel,
        activations: Activations | None,
        driver_calls: Callable[[], Mapping[str, int]],
        padding: Padding | None = None,
    ) -> None:
        self._costs = costs
        self._activations = activations
        self._padding = padding
        self._read_driver_calls = driver_calls
        self._charged = dict(driver_calls())
        self.driver_s = 0.0

    def run(self, work: StepWork, memory_state: int) -> float:
        if self._padding is not None:
            work = self._padding.pad(work)
        if self._activations is not None:
            self._activations.run(work.tokens, work.sampled, memory_state)
        return self._costs.step_s(work) + self._charge_driver()

    def copy_s(self, nbytes: int, copies: int) -> float:
        return self._costs.copy_s(nbytes, copies)

    def _charge_driver(self) -> float:
        calls = self._read_driver_calls()
        if calls == self._charged:
            return 0.0
        new = {kind: count - self._charged.get(kind, 0) for kind, count in calls.items()}
        self._charged = dict(calls)
        seconds = self._costs.driver_s(new)
        self.driver_s += seconds
        return seconds
