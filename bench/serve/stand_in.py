"""What a model that is not run would answer."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from bench.engine.sequence import Sequence
from workloads.tokens import output_ids


class StandInAnswers:
    """The ids of a request's next tokens: those that a workload's later turns take its answer to be
    (workloads/tokens.py), in its first branch; shifted by the branch's number in others."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._made: dict[int, NDArray[Any]] = {}

    def __call__(self, sequence: Sequence) -> list[int]:
        """One id a branch."""
        ids = self._made.get(sequence.id)
        if ids is None:
            ids = self._made[sequence.id] = output_ids(sequence.request, self._vocab_size)
        first = int(ids[sequence.generated])
        return [(first + branch) % self._vocab_size for branch in range(sequence.width)]

    def forget(self, sequence: Sequence) -> None:
        """It ended."""
        self._made.pop(sequence.id, None)
