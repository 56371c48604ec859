"""Static shapes: a step is padded to the next shape that kernels were compiled or captured for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.costs import StepWork

SMALLEST_SHAPE = 16


@dataclass(frozen=True, slots=True)
class Padding:
    """Rounds a step's tokens and sampled rows up to powers of two, at most the largest step's.

    Padded tokens are computed and held like any other, by everything but attention, whose kernels
    stop at a sequence's length.
    """

    largest_tokens: int
    largest_rows: int

    def pad(self, work: StepWork) -> StepWork:
        """The step that is really computed."""
        return replace(
            work,
            tokens=min(_next_shape(work.tokens), self.largest_tokens),
            sampled=min(_next_shape(work.sampled), self.largest_rows),
        )


def _next_shape(n: int) -> int:
    return n if n == 0 else max(SMALLEST_SHAPE, 1 << (n - 1).bit_length())
