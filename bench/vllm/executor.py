"""Steps that vLLM has computed, on a real GPU, when we come to them."""

from __future__ import annotations

from typing import ClassVar

from bench.costs import StepWork
from bench.engine.executor import Computed, ModelledExecutor
from bench.engine.scheduler import Plan


class MeasuredExecutor(ModelledExecutor):
    """Takes the time that passed; what the model says of it is added up beside."""

    measures: ClassVar[bool] = True

    def run(self, work: StepWork, plan: Plan, memory_state: int) -> Computed:
        return Computed(None, super().run(work, plan, memory_state).token_ids)
