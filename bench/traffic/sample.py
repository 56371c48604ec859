"""The turns of a workload as a preview counts them: drawn, not run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from bench.turns import MOST_COUNTED, turns
from workloads.base import Request

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Sample:
    """Turns in the order drawn, those of a session in a row; `first` marks where one starts.

    `whole` says whether the workload has no more than these.
    """

    turns: list[Request]
    first: Flags
    whole: bool

    @cached_property
    def prompt_tokens(self) -> Ints:
        return self._column(lambda turn: turn.prompt_tokens)

    @cached_property
    def output_tokens(self) -> Ints:
        """Of one answer."""
        return self._column(lambda turn: turn.output_tokens)

    @cached_property
    def total_tokens(self) -> Ints:
        """Prompt and one answer: what max_model_len bounds."""
        return self.prompt_tokens + self.output_tokens

    @cached_property
    def branches(self) -> Ints:
        return self._column(lambda turn: turn.branches)

    @cached_property
    def starts_s(self) -> Floats:
        """When each session's first turn is scheduled."""
        firsts = (turn for turn, first in zip(self.turns, self.first, strict=True) if first)
        return np.array([turn.scheduled_s for turn in firsts])

    @cached_property
    def said_tokens(self) -> Ints:
        """Of one answer, until its client leaves with so many."""
        return self._column(_said_tokens)

    @cached_property
    def left_after_s(self) -> Floats:
        """How long after it was sent each turn's client leaves, infinity if by no clock."""
        return np.array([_left_after_s(turn) for turn in self.turns])

    @cached_property
    def read_per_s(self) -> Floats:
        """Tokens/s at which each turn's client reads, infinity for as fast as they come."""
        return np.array([turn.client.tokens_per_s or math.inf for turn in self.turns])

    @property
    def sessions(self) -> int:
        return int(self.first.sum())

    @property
    def sessions_per_s(self) -> float | None:
        """(sessions - 1) / (last - first start): None for one alone, or all at one moment."""
        span_s = float(np.ptp(self.starts_s))
        return (self.sessions - 1) / span_s if span_s else None

    @property
    def turns_per_session(self) -> float:
        return len(self.turns) / self.sessions

    def sent_s(self, answered_in_s: Floats) -> Floats:
        """When each turn is sent: a later one its think time after the answer to the one before
        has ended, which takes `answered_in_s`."""
        times, now_s = np.zeros(len(self.turns)), 0.0
        for number, (turn, first) in enumerate(zip(self.turns, self.first, strict=True)):
            since_s = 0.0 if first else now_s + answered_in_s[number - 1]
            times[number] = now_s = since_s + turn.scheduled_s
        return times

    def where(self, chosen: Flags) -> Sample:
        """Some of the turns: with each, those of its session before it."""
        kept = [turn for turn, keep in zip(self.turns, chosen, strict=True) if keep]
        return Sample(kept, self.first[chosen], self.whole)

    def _column(self, read: Callable[[Request], int]) -> Ints:
        return np.array([read(turn) for turn in self.turns], dtype=np.int64)


def _said_tokens(turn: Request) -> int:
    leave = turn.client.leave
    if leave is None or leave.after_tokens is None:
        return turn.output_tokens
    return min(turn.output_tokens, leave.after_tokens)


def _left_after_s(turn: Request) -> float:
    leave = turn.client.leave
    return math.inf if leave is None or leave.after_s is None else leave.after_s


def draw(first_turns: Iterable[Request], most: int = MOST_COUNTED) -> Sample:
    """The first `most` turns."""
    drawn = list(islice(turns(first_turns), most + 1))
    kept, following = drawn[:most], [None, *(turn.next_turn for turn in drawn)]
    first = [turn is not next_turn for turn, next_turn in zip(kept, following, strict=False)]
    return Sample(kept, np.array(first, dtype=bool), whole=len(drawn) <= most)
