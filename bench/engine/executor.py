"""What a step's computation does to memory and time, and which tokens come out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple, Protocol

from bench.costs import CostModel, StepWork
from bench.engine.activations import Activations
from bench.engine.padding import Padding
from bench.engine.scheduler import Plan
from bench.engine.sequence import Sequence

Answer = Callable[[Sequence], list[int]]
"""The ids of a sequence's next tokens, one a branch."""


DriverCalls = Callable[[], Mapping[str, int]]


class Computed(NamedTuple):
    """What a step took, in modelled seconds (None: they are measured), and the ids that come out
    of it: for each sequence that gives a token one a branch, in the step's order; None where
    nothing is computed."""

    seconds: float | None
    token_ids: list[list[int]] | None = None


class Executor(Protocol):
    """Runs a step's computation. `modelled_s` adds up what the cost model says of all steps, also
    where their time is measured; `driver_s` is what of it the driver's calls took."""

    measures: ClassVar[bool]
    modelled_s: float

    @property
    def looks_at_each(self) -> bool:
        """Whether `run` has to be told of every sequence of a step."""
        ...

    @property
    def driver_s(self) -> float: ...

    def run(self, work: StepWork, plan: Plan, memory_state: int) -> Computed:
        """Computes a plan, which is `work` in all. `memory_state` differs when device memory
        moved in between.

        Raises torch.OutOfMemoryError when the step's activations do not fit; it can be run again.
        """
        ...

    def copy_s(self, nbytes: int, copies: int) -> float:
        """Modelled seconds to copy KV between buffers, `nbytes` in all."""
        ...

    def charge(self) -> float:
        """Modelled seconds of the driver's calls since the last step, which they are not part
        of."""
        ...


class DriverCharge:
    """Modelled seconds of the driver's calls, for KV memory and for activations alike, charged to
    the step they happened in. `driver_calls` reads how often it was called, by kind, since the
    process began."""

    def __init__(self, costs: CostModel, driver_calls: DriverCalls) -> None:
        self._costs = costs
        self._read = driver_calls
        self._charged = driver_calls()
        self.seconds = 0.0

    def charge(self) -> float:
        """Of the calls since the last time."""
        calls = self._read()
        if calls is self._charged or calls == self._charged:
            return 0.0
        new = {kind: count - self._charged.get(kind, 0) for kind, count in calls.items()}
        self._charged = calls
        seconds = self._costs.driver_s(new)
        self.seconds += seconds
        return seconds


class ModelledExecutor:
    """Activations are real allocations, time is the cost model's; both are of the padded step.

    `answer` gives the ids that stand for a sequence's next tokens, where somebody wants to know.
    """

    measures: ClassVar[bool] = False

    def __init__(
        self,
        costs: CostModel,
        activations: Activations | None,
        driver_calls: DriverCalls,
        padding: Padding | None = None,
        answer: Answer | None = None,
    ) -> None:
        self._answer = answer
        self._costs = costs
        self._activations = activations
        self._padding = padding
        self._driver = DriverCharge(costs, driver_calls)
        self.modelled_s = 0.0

    @property
    def looks_at_each(self) -> bool:
        return self._answer is not None

    def run(self, work: StepWork, plan: Plan, memory_state: int) -> Computed:
        seconds = self._compute(work, plan, memory_state) + self._driver.charge()
        self.modelled_s += seconds
        if self._answer is None:
            return Computed(seconds)
        asking = (s for s in plan.sequences if s.computed + s.chunk == s.known)
        return Computed(seconds, [self._answer(sequence) for sequence in asking])

    def _compute(self, work: StepWork, plan: Plan, memory_state: int) -> float:
        """Modelled seconds of a step without the driver's calls. Raises as `run` does."""
        return self._forward_pass(work, work, memory_state)

    def _forward_pass(self, work: StepWork, charged: StepWork, memory_state: int) -> float:
        """Activations of `work`, and what `charged` takes."""
        if self._padding is not None:
            work, charged = self._padding.pad(work), self._padding.pad(charged)
        if self._activations is not None:
            self._activations.run(work.tokens, work.sampled, memory_state)
        return self._costs.step_s(charged)

    def copy_s(self, nbytes: int, copies: int) -> float:
        seconds = self._costs.copy_s(nbytes, copies)
        self.modelled_s += seconds
        return seconds

    def charge(self) -> float:
        seconds = self._driver.charge()
        self.modelled_s += seconds
        return seconds

    @property
    def driver_s(self) -> float:
        return self._driver.seconds
