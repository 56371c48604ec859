"""A step without batching: each sequence is a forward pass of its own, one after another, as where
each has a cache object of its own (Hugging Face's model takes one a call)."""

from __future__ import annotations

from dataclasses import replace

from bench.costs import CostModel, StepWork
from bench.engine.activations import Activations
from bench.engine.engine import step_work
from bench.engine.executor import Answer, DriverCalls, ModelledExecutor
from bench.engine.padding import Padding
from bench.engine.scheduler import Plan
from bench.engine.sequence import Sequence


class OneAtATimeExecutor(ModelledExecutor):
    """Activations and modelled time of each pass by itself; a step takes as long as all of them."""

    def __init__(
        self,
        costs: CostModel,
        activations: Activations | None,
        driver_calls: DriverCalls,
        padding: Padding | None = None,
        answer: Answer | None = None,
        *,
        reads_all_slots: bool,
    ) -> None:
        """`reads_all_slots` says that attention runs over all that a sequence holds, filled or not:
        a StaticCache hands out its whole tensors, and a mask for the rest."""
        super().__init__(costs, activations, driver_calls, padding, answer)
        self._reads_all_slots = reads_all_slots

    @property
    def looks_at_each(self) -> bool:
        return True

    def _compute(self, work: StepWork, plan: Plan, memory_state: int) -> float:
        return sum(self._pass_s(sequence, memory_state) for sequence in plan.sequences)

    def _pass_s(self, sequence: Sequence, memory_state: int) -> float:
        work = step_work(Plan([sequence]))
        charged = _over_all_slots(work, sequence) if self._reads_all_slots else work
        return self._forward_pass(work, charged, memory_state)


def _over_all_slots(work: StepWork, sequence: Sequence) -> StepWork:
    row = sequence.slots // sequence.width
    if work.decode_sequences:
        return replace(work, decode_context_tokens=row * work.decode_sequences)
    return replace(
        work,
        prefill_attention_tokens=row * work.tokens,
        prefill_context_tokens=row * sequence.branches,
    )
