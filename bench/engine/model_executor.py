"""Real compute: the model's forward pass over a step's tokens, K and V in the backend's memory."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from backends.base import Backend, DeviceName, NewTokens, StepAttention
from bench.costs import CostModel, StepWork
from bench.engine.executor import Computed, DriverCalls, DriverCharge
from bench.engine.padding import Padding
from bench.engine.scheduler import Plan
from bench.engine.sequence import Sequence as EngineSequence
from bench.model.decoder import Decoder
from bench.model.sampling import Sampler


class ModelExecutor:
    """Computes each step with `decoder`; its time is measured by the engine. What fills static
    shapes up is computed too, by all but attention."""

    measures: ClassVar[bool] = True
    looks_at_each: ClassVar[bool] = True

    def __init__(
        self,
        decoder: Decoder,
        backend: Backend,
        sampler: Sampler,
        costs: CostModel,
        device: DeviceName,
        padding: Padding | None = None,
        driver_calls: DriverCalls = dict,
    ) -> None:
        self._decoder = decoder
        self._backend = backend
        self._sampler = sampler
        self._costs = costs
        self._device = device
        self._padding = padding
        self._driver = DriverCharge(costs, driver_calls)
        self.modelled_s = 0.0

    @torch.inference_mode()
    def run(self, work: StepWork, plan: Plan, memory_state: int) -> Computed:
        if self._padding is not None:
            work = self._padding.pad(work)
        batch, askers = _Batch(), []
        for sequence in plan.sequences:
            start, stop = sequence.computed, sequence.computed + sequence.chunk
            asks = stop == sequence.known
            if asks:
                askers.append(sequence)
            batch.add(sequence, start, stop, asks)
        for sequence in plan.padding:  # its last token, again
            batch.add(sequence, sequence.computed - 1, sequence.computed, asks=True)
        attend = _RealRows(self._backend.attention(batch.rows), len(batch.token_ids))
        logits = self._decoder.logits(
            self._tensor(batch.token_ids, work.tokens),
            self._tensor(batch.positions, work.tokens),
            self._tensor(batch.sampled, work.sampled),
            attend,
        )
        token_ids = self._sampler.sample(logits, askers)
        if self._device == "cuda":
            torch.cuda.synchronize()  # where nothing was sampled, nothing has waited yet
        self.modelled_s += self._costs.step_s(work) + self._driver.charge()
        return Computed(None, token_ids)

    def _tensor(self, values: list[int], length: int) -> Tensor:
        """Padded with zeros: some token at position 0, whose logits nobody reads."""
        padded = values + [0] * (length - len(values))
        return torch.tensor(padded, dtype=torch.int64, device=self._device)

    @property
    def driver_s(self) -> float:
        """What of `modelled_s` the driver's calls took."""
        return self._driver.seconds

    def copy_s(self, nbytes: int, copies: int) -> float:
        """Real copies take their time within the step."""
        self.modelled_s += self._costs.copy_s(nbytes, copies)
        return 0.0

    def charge(self) -> float:
        seconds = self._driver.charge()
        self.modelled_s += seconds
        return seconds


class _Batch:
    """A step's rows, a branch each, and their tokens packed one after another."""

    def __init__(self) -> None:
        self.rows: list[NewTokens] = []
        self.token_ids: list[int] = []
        self.positions: list[int] = []
        self.sampled: list[int] = []

    def add(self, sequence: EngineSequence, start: int, stop: int, asks: bool) -> None:
        """A sequence's tokens from `start` up to `stop`, the last of which may ask for another."""
        assert sequence.text is not None, "real compute needs the tokens' ids"
        for branch in range(sequence.branches):
            self.rows.append(NewTokens(sequence.id, branch, start, stop))
            self.token_ids += sequence.text.branches[branch][start:stop]
            self.positions += range(start, stop)
            if asks:
                self.sampled.append(len(self.token_ids) - 1)


class _RealRows:
    """Attention of the first `tokens` rows alone; those that pad a static shape get zeros."""

    def __init__(self, attend: StepAttention, tokens: int) -> None:
        self._attend = attend
        self._tokens = tokens

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        tokens = self._tokens
        if tokens == len(q):
            return self._attend(layer, q, k, v)
        attended = torch.zeros_like(q, memory_format=torch.contiguous_format)
        attended[:tokens] = self._attend(layer, q[:tokens], k[:tokens], v[:tokens])
        return attended
