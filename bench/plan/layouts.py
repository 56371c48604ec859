"""What layouts of KV memory would hold for a workload's lengths: counted, nothing is run.

A request of p prompt and n output tokens runs n steps, in which it has p, p + 1, ..., p + n - 1
live tokens. Means are over running sequences, each as long as it runs: sums over all steps of all
requests / their number of steps. Steps are taken to last alike.

Branches of a request share the prompt's full blocks in blocks; in buffers each has all of its own.
Neither the allocator's rounding nor free memory in pieces too small is in it: a run shows those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bench.traffic.sample import Flags, Floats, Ints

BLOCK_TOKENS = 16
FIRST_BUCKET_TOKENS = 128
RESERVED, BUCKETS, BLOCKS = "reserved", "buckets", "blocks"
LAYOUTS = {
    RESERVED: ("contiguous", "max_model_len reserved"),
    BUCKETS: ("bucketed", "power-of-two buckets"),
    BLOCKS: ("paged", f"blocks of {BLOCK_TOKENS}"),
}
"""Each with the backend that has it and what it is called, the simplest first."""


class Lengths(NamedTuple):
    """Of requests: tokens of the prompt and of one answer, and how many answers."""

    prompt_tokens: Ints
    output_tokens: Ints
    branches: Ints

    @property
    def requests(self) -> int:
        """How many there are."""
        return len(self.prompt_tokens)

    @property
    def total_tokens(self) -> Ints:
        """Prompt and one answer: what max_model_len bounds."""
        return self.prompt_tokens + self.output_tokens

    @property
    def final_tokens(self) -> Ints:
        """That a request ends with: the last one of an answer is never read again."""
        return self.prompt_tokens + self.branches * (self.output_tokens - 1)

    def where(self, chosen: Flags) -> Lengths:
        """Some of the requests."""
        return Lengths(*(column[chosen] for column in self))


@dataclass(frozen=True)
class Held:
    """Slots in tokens that the requests would hold, in sums over the steps that they run."""

    steps: float
    live: float
    held: dict[str, float]

    def mean(self, layout: str) -> float:
        """Slots of a running sequence."""
        return self.held[layout] / self.steps

    @property
    def live_mean(self) -> float:
        """Live tokens of a running sequence."""
        return self.live / self.steps

    def waste(self, layout: str) -> float:
        """Share of what is held that is no live token."""
        return 1 - self.live / self.held[layout]

    def at_once(self, layout: str, live_tokens: int) -> int:
        """Sequences that so many tokens of memory hold on average."""
        return int(live_tokens / self.mean(layout))


def held(lengths: Lengths, max_model_len: int) -> Held:
    """Of requests that are served with `max_model_len`, at least one."""
    prompt, output, branches = (column.astype(np.float64) for column in lengths)
    grown = output * (output - 1) / 2
    first, last = lengths.prompt_tokens, lengths.total_tokens - 1
    return Held(
        steps=float(output.sum()),
        live=float((output * prompt + branches * grown).sum()),
        held={
            RESERVED: float((branches * output).sum() * max_model_len),
            BUCKETS: float((branches * _in_buckets(first, last, max_model_len)).sum()),
            BLOCKS: float(_in_blocks(first, last, branches).sum()),
        },
    )


def buckets(max_model_len: int) -> list[int]:
    """Lengths that double from 128, the last one being `max_model_len`."""
    lengths, next_length = [], FIRST_BUCKET_TOKENS
    while next_length < max_model_len:
        lengths.append(next_length)
        next_length *= 2
    return [*lengths, max_model_len]


def _in_buckets(first: Ints, last: Ints, max_model_len: int) -> Floats:
    """Slots over the steps from `first` to `last` live tokens, each in the bucket that it fits."""
    slots, below = np.zeros(len(first)), 0
    for bucket in buckets(max_model_len):
        steps = np.clip(last, below, bucket) - np.clip(first - 1, below, bucket)
        slots += steps.astype(np.float64) * bucket
        below = bucket
    return slots


def _in_blocks(first: Ints, last: Ints, branches: Floats) -> Floats:
    """The prompt's step alone, then all branches beside what they share."""
    shared = (first // BLOCK_TOKENS * BLOCK_TOKENS).astype(np.float64)
    steps = (last - first).astype(np.float64)
    own = _rounded_up_to(last) - _rounded_up_to(first) - steps * shared
    return _whole_blocks(first) + steps * shared + branches * own


def _whole_blocks(tokens: Ints) -> Floats:
    whole: Floats = (-(-tokens // BLOCK_TOKENS) * BLOCK_TOKENS).astype(np.float64)
    return whole


def _rounded_up_to(tokens: Ints) -> Floats:
    """The sum of all lengths from 1 up to `tokens`, each rounded up to whole blocks."""
    full, rest = np.divmod(tokens.astype(np.float64), BLOCK_TOKENS)
    rounded: Floats = BLOCK_TOKENS * (BLOCK_TOKENS * full * (full + 1) / 2 + rest * (full + 1))
    return rounded
