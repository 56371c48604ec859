"""A sampler's tensors, whose sizes follow the batch: [rows, vocabulary] of each step."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from bench.costs import StepWork
from bench.engine.sequence import Sequence as EngineSequence
from bench.sources.base import Quiet, Served
from bench.sources.room import Room
from workloads.settings import count

KEPT = "probabilities"

# What a top-p sampler makes of the logits, in PyTorch's operations: each makes its result, with
# bytes an element, and lets go what is not read again.
OPERATIONS: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("logits", 4, ()),  # of 32 bits, scaled by temperature
    ("sorted", 4, ()),
    ("order", 8, ()),  # the other result of the sort
    ("sorted_probabilities", 4, ()),
    ("cumulative", 4, ("sorted_probabilities",)),
    ("outside", 1, ("cumulative",)),  # beyond top-p
    ("kept_logits", 4, ("sorted", "order", "outside", "logits")),  # in the vocabulary's order again
    (KEPT, 4, ("kept_logits",)),
    ("noise", 4, ()),  # exponential: the largest quotient is the sample
    ("quotient", 4, ("noise", "quotient")),
)


class BatchSizes(Quiet):
    """Top-p sampling of each step's rows, after its activations. What it makes is gone by the end
    of the step but for the probabilities, which stay for another `kept_steps` steps, as where
    outputs are processed behind the next step. A server profiles a step of the most rows, so the
    peak of that is set aside. A step that is refused memory samples without.
    """

    def __init__(self, *, kept_steps: int = 1) -> None:
        fix = "give how many steps later they are read, such as 1"
        self._kept_steps = count("sources.batch_sizes.kept_steps", kept_steps, 0, 64, "steps", fix)
        self._kept: deque[list[int]] = deque()

    def planned_bytes(self, served: Served) -> int:
        elements = served.max_rows * served.model.vocab_size
        return elements * (_peak_element_bytes() + self._kept_steps * _element_bytes(KEPT))

    def start(self, served: Served, room: Room) -> None:
        self._room = room
        self._vocab_size = served.model.vocab_size

    def step_ended(self, sequences: Sequence[EngineSequence], work: StepWork) -> None:
        kept = self._sample(work.sampled * self._vocab_size) if work.sampled else None
        self._kept.append(kept or [])
        while len(self._kept) > self._kept_steps:
            self._room.give(self._kept.popleft())

    def _sample(self, elements: int) -> list[int] | None:
        """Makes and frees what sampling does; what is kept of it, None where it was refused."""
        live: dict[str, list[int]] = {}
        for name, element_bytes, freed in OPERATIONS:
            made = self._room.take([element_bytes * elements])
            if made is None:
                break
            live[name] = made
            for each in freed:
                self._room.give(live.pop(each))
        else:
            return live[KEPT]
        for blocks in live.values():
            self._room.give(blocks)
        return None


def _element_bytes(name: str) -> int:
    return next(element_bytes for each, element_bytes, _ in OPERATIONS if each == name)


def _peak_element_bytes() -> int:
    """Most bytes an element of [rows, vocabulary] that are alive at a time."""
    live = peak = 0
    for _, element_bytes, freed in OPERATIONS:
        live += element_bytes
        peak = max(peak, live)
        live -= sum(map(_element_bytes, freed))
    return peak
