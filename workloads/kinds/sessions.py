"""Conversations: sessions of turns, each of which carries all that was said before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, islice
from typing import NamedTuple

from workloads.base import Request, Segment, Source
from workloads.clients import Clients
from workloads.kinds.base import Draft, Drafts, check_share
from workloads.lengths.base import Lengths, check_lengths
from workloads.settings import number
from workloads.shared_texts import SharedTexts, check_texts
from workloads.streams import stream

_LONGEST_THINK_S = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class MultiTurn:
    """Sessions of one to many turns.

    A turn's prompt is one of `system_prompts`, all earlier messages and answers, and a message of
    its own. It is sent a think time after the turn before has ended: gamma, of mean `think_time_s`
    and coefficient of variation `think_time_cv` (1: exponential; 0: always the mean). A session
    ends with its number of `turns` (a distribution of whole numbers), or before the turn whose
    prompt + answer would exceed the workload's `max_total_tokens`.

    Turns, messages, answers, think times and system prompts draw from streams of their own: the
    same seed gives the same contents and think times, however fast they are answered.
    """

    turns: Lengths
    message: Lengths
    answer: Lengths
    think_time_s: float
    think_time_cv: float = 1.0
    system_prompts: SharedTexts | None = None
    share: float = 1.0
    clients: Clients | None = None

    def least_total_tokens(self) -> int:
        system_prompt = self.system_prompts.lengths.max_tokens if self.system_prompts else 0
        return system_prompt + self.message.max_tokens + self.answer.max_tokens

    def check(self, setting: str) -> None:
        check_share(setting, self.share)
        for name in ("turns", "message", "answer"):
            check_lengths(f"{setting}.{name}", getattr(self, name))
        fix = "0 sends each turn as soon as the one before has ended"
        name = f"{setting}.think_time_s"
        number(name, self.think_time_s, 0, _LONGEST_THINK_S, "seconds", fix)
        fix = "cv is standard deviation / mean"
        number(f"{setting}.think_time_cv", self.think_time_cv, 0, 10, "(a ratio)", fix)
        if self.system_prompts is not None:
            check_texts(f"{setting}.system_prompts", self.system_prompts)

    def drafts(self, name: str, seed: int, max_total_tokens: int | None) -> Drafts:
        return _Drawn(self, name, seed, max_total_tokens).drafts


class _Turn(NamedTuple):
    """One turn: the time after which it is sent (of the first one: 0), its place in its session,
    and the tokens that it adds."""

    delay_s: float
    number: int
    message: int
    answer: int


class _Drawn:
    """The random state of one run."""

    def __init__(self, kind: MultiTurn, name: str, seed: int, max_total_tokens: int | None) -> None:
        self._name, self._kind, self._max_total_tokens = name, kind, max_total_tokens
        names = ("turns", "messages", "answers", "think_times", "system_prompts")
        self._streams = {each: stream(seed, f"sessions/{name}/{each}") for each in names}
        self._texts: list[Segment] = []
        if kind.system_prompts is not None:
            self._texts = kind.system_prompts.segments(f"system_prompts/{name}")

    def drafts(self, size: int) -> list[Draft]:
        """The next `size` sessions."""
        kind, streams = self._kind, self._streams
        turns = kind.turns.draw(streams["turns"], size).tolist()
        total = sum(turns)
        messages = kind.message.draw(streams["messages"], total).tolist()
        answers = kind.answer.draw(streams["answers"], total).tolist()
        thinks_s = iter(self._think_times_s(total - size))
        added = zip(messages, answers, strict=True)
        return [
            self._draft(start, number, thinks_s, added)
            for start, number in zip(self._starts(size), turns, strict=True)
        ]

    def _draft(
        self,
        start: tuple[Segment, ...],
        size: int,
        thinks_s: Iterator[float],
        added: Iterator[tuple[int, int]],
    ) -> Draft:
        delays_s = chain((0.0,), islice(thinks_s, size - 1))
        session = zip(delays_s, range(size), islice(added, size), strict=True)
        turns = [_Turn(delay_s, number, *tokens) for delay_s, number, tokens in session]
        turns = self._cut(start, turns)
        return Draft(partial(_chain, self._name, start, turns), size, len(turns))

    def _starts(self, size: int) -> list[tuple[Segment, ...]]:
        """What each of `size` sessions starts with: its system prompt."""
        texts = self._kind.system_prompts
        if texts is None:
            return [()] * size
        picks = texts.draw(self._streams["system_prompts"], size)
        return [(self._texts[pick],) for pick in picks.tolist()]

    def _think_times_s(self, size: int) -> list[float]:
        kind = self._kind
        if kind.think_time_cv == 0:
            return [float(kind.think_time_s)] * size
        shape = kind.think_time_cv**-2
        gammas = self._streams["think_times"].standard_gamma(shape, size)
        times_s = gammas * (kind.think_time_s / shape)
        return [round(time_s, 9) for time_s in times_s.tolist()]

    def _cut(self, start: tuple[Segment, ...], turns: list[_Turn]) -> list[_Turn]:
        """The turns before the one that would exceed `max_total_tokens`."""
        if self._max_total_tokens is None:
            return turns
        said = sum(segment.tokens for segment in start)
        totals = accumulate((turn.message + turn.answer for turn in turns), initial=said)
        fitting = sum(total <= self._max_total_tokens for total in totals) - 1
        return turns[:fitting]


def _chain(
    kind: str,
    start: tuple[Segment, ...],
    turns: list[_Turn],
    first_id: int,
    time_s: float,
    most: int,
) -> Request:
    """The first turn's request, with the later ones inside, `most` in all."""
    turns = turns[:most]
    said, prefixes = start, []
    for turn in turns:
        prefixes.append(said)
        said = (
            *said,
            Segment(Source.PROMPT, first_id + turn.number, turn.message),
            Segment(Source.OUTPUT, first_id + turn.number, turn.answer),
        )
    request: Request | None = None
    for turn, prefix in zip(reversed(turns), reversed(prefixes), strict=True):
        request = Request(
            request_id=first_id + turn.number,
            scheduled_s=time_s if turn.number == 0 else turn.delay_s,
            prompt_tokens=sum(segment.tokens for segment in prefix) + turn.message,
            output_tokens=turn.answer,
            kind=kind,
            prefix=prefix,
            next_turn=request,
        )
    assert request is not None
    return request
