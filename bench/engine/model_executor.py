"""Real compute: the model's forward pass over a step's tokens, K and V in the backend's memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from backends.base import Backend, NewTokens
from bench.costs import CostModel, StepWork
from bench.engine.executor import Computed
from bench.engine.sequence import Sequence as EngineSequence
from bench.model.decoder import Decoder
from bench.model.sampling import Sampler


class ModelExecutor:
    """Computes each step with `decoder`; its time is measured by the engine. `modelled_s` adds up
    what the cost model says of the same steps."""

    driver_s = 0.0

    def __init__(
        self, decoder: Decoder, backend: Backend, sampler: Sampler, costs: CostModel, device: str
    ) -> None:
        self._decoder = decoder
        self._backend = backend
        self._sampler = sampler
        self._costs = costs
        self._device = device
        self.modelled_s = 0.0

    @torch.inference_mode()
    def run(
        self, work: StepWork, sequences: Sequence[EngineSequence], memory_state: int
    ) -> Computed:
        rows: list[NewTokens] = []
        token_ids: list[int] = []
        positions: list[int] = []
        sampled: list[int] = []
        askers = []
        for sequence in sequences:
            assert sequence.text is not None, "real compute needs the tokens' ids"
            start, stop = sequence.computed, sequence.computed + sequence.chunk
            if stop == sequence.known:
                askers.append(sequence)
            for branch in range(sequence.branches):
                rows.append(NewTokens(sequence.id, branch, start, stop))
                token_ids += sequence.text.branches[branch][start:stop]
                positions += range(start, stop)
                if stop == sequence.known:
                    sampled.append(len(token_ids) - 1)
        on = partial(torch.tensor, dtype=torch.int64, device=self._device)
        attend = self._backend.attention(rows)
        logits = self._decoder.logits(on(token_ids), on(positions), on(sampled), attend)
        self.modelled_s += self._costs.step_s(work)
        return Computed(None, self._sampler.sample(logits, askers))

    def copy_s(self, nbytes: int, copies: int) -> float:
        """Real copies take their time within the step."""
        self.modelled_s += self._costs.copy_s(nbytes, copies)
        return 0.0
