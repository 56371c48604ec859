"""Speculative decoding: draft slots taken in each round, those of rejected drafts given back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from bench.costs import StepWork
from bench.engine.sequence import Sequence as EngineSequence
from bench.sources.base import Quiet, Served, decodes
from bench.sources.room import Room
from bench.sources.settings import side_model
from workloads.settings import count, number
from workloads.streams import stream

PROBABILITY_BYTES = 4


class _Speculated:
    """A sequence's draws, the slots of tokens that were said, and those of the round that runs. Its
    next round is due when it has generated `due` tokens."""

    def __init__(self, seed: int, sequence: int) -> None:
        self.rng = stream(seed, f"sources/speculative/{sequence}")
        self.kept: list[int] = []
        self.taken: list[int] = []
        self.due = 0


class Speculative(Quiet):
    """A round drafts `draft_tokens` tokens for a sequence: a slot in the draft model's own KV
    memory for each, and for the token said last, which drafting begins with; and the drafts'
    probabilities over the vocabulary (32 bits) for all sequences together, which the verification
    reads (Leviathan et al., 2023). Of the drafts the first few are accepted, each with probability
    `acceptance` if the one before it was; the others' slots are given back.

    A round that accepted n drafts says n + 1 tokens, the last one the verifying model's own, and
    keeps n + 1 slots. The engine says one token a step all the same: the sequence has its next
    round n + 1 steps later, so that slots for each token said are right and rounds are further
    apart than on a server. The defaults are a draft model of Llama 3.2 1B's shape. A
    sequence that is refused its slots, or all where probabilities are, skips the round. Samples and
    beams are not speculated.
    """

    def __init__(
        self,
        *,
        draft_tokens: int = 4,
        acceptance: float = 0.7,
        layers: int = 16,
        kv_heads: int = 8,
        head_dim: int = 64,
    ) -> None:
        fix = "give how many are drafted in a round, such as 4"
        self._width = count("sources.speculative.draft_tokens", draft_tokens, 1, 64, "tokens", fix)
        fix = "give the probability that a draft is accepted, such as 0.7"
        self._acceptance = number(
            "sources.speculative.acceptance", acceptance, 0, 1, "(a probability)", fix
        )
        self._slot_bytes = side_model("speculative", layers, kv_heads, head_dim).token_bytes
        self._sequences: dict[int, _Speculated] = {}
        self._probabilities: list[int] = []
        self._counts = Counter(rounds=0, drafted_tokens=0, accepted_tokens=0)

    def start(self, served: Served, room: Room) -> None:
        self._seed, self._room = served.seed, room
        self._row_bytes = served.model.vocab_size * PROBABILITY_BYTES

    def step_begins(self, sequences: Sequence[EngineSequence], work: StepWork) -> None:
        due = [each for each in sequences if self._is_due(each)]
        if not due:
            return
        probabilities = self._room.take([len(due) * self._width * self._row_bytes])
        if probabilities is None:
            return
        self._probabilities = probabilities
        for sequence in due:
            slots = self._room.take([self._slot_bytes] * (1 + self._width))
            self._sequences[sequence.id].taken = slots or []

    def _is_due(self, sequence: EngineSequence) -> bool:
        if sequence.width > 1 or not decodes(sequence):
            return False
        if sequence.id not in self._sequences:
            self._sequences[sequence.id] = _Speculated(self._seed, sequence.id)
        return sequence.generated >= self._sequences[sequence.id].due

    def step_ended(self, sequences: Sequence[EngineSequence], work: StepWork) -> None:
        for sequence in sequences:
            speculated = self._sequences.get(sequence.id)
            if speculated is not None and speculated.taken:
                accepted = self._verify(speculated)
                speculated.due = sequence.generated + accepted + 1
        if self._probabilities:
            self._room.give(self._probabilities)
            self._probabilities = []

    def _verify(self, speculated: _Speculated) -> int:
        """Keeps the first slot and those of accepted drafts, and gives the others back."""
        rejected = speculated.rng.random(self._width) >= self._acceptance
        accepted = int(np.argmax(rejected)) if rejected.any() else self._width
        speculated.kept += speculated.taken[: 1 + accepted]
        self._room.give(speculated.taken[1 + accepted :])
        speculated.taken = []
        self._counts.update(rounds=1, drafted_tokens=self._width, accepted_tokens=accepted)
        return accepted

    def left(self, sequence: int) -> None:
        speculated = self._sequences.pop(sequence, None)
        if speculated is not None:
            self._room.give(speculated.kept + speculated.taken)

    def counts(self) -> Mapping[str, int]:
        return dict(self._counts)
