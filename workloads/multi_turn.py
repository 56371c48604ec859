"""Conversations: sessions of turns, each of which carries all that was said before."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, chain, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals.base import NS_PER_S, Arrivals
from workloads.base import Request, Segment, Source
from workloads.lengths.base import Lengths, check_lengths
from workloads.schedule import Schedule
from workloads.settings import MAX_TOKENS, count, number, text
from workloads.shared_texts import SharedTexts, check_texts
from workloads.streams import stream

_LONGEST_THINK_S = 1e6


class MultiTurn:
    """Sessions start at `rate_rps` sessions/s, the first at 0 s, and are of one to many turns.

    A turn's prompt is one of `system_prompts`, all earlier messages and answers, and a message of
    its own. It is sent a think time after the turn before has ended: gamma, of mean `think_time_s`
    and coefficient of variation `think_time_cv` (1: exponential; 0: always the mean). A session
    ends with its number of `turns` (a distribution of whole numbers), or before the turn whose
    prompt + answer would exceed `max_total_tokens`.

    Starts end as workloads/schedule.py says; `num_requests` counts turns, of which the last
    session may have fewer for it. Turns, messages, answers, think times and system prompts draw
    from streams of their own: the same seed gives the same contents and think times, however fast
    they are answered. Requests are numbered as sessions are drawn, turns that come to nothing
    included: another limit or rate leaves the numbers of those that remain, and so their tokens,
    alone. Raises WorkloadError for a setting that cannot be used.
    """

    def __init__(
        self,
        *,
        arrivals: Arrivals,
        turns: Lengths,
        message: Lengths,
        answer: Lengths,
        think_time_s: float,
        think_time_cv: float = 1.0,
        system_prompts: SharedTexts | None = None,
        rate_rps: float | None = None,
        num_requests: int | None = None,
        duration_s: float | None = None,
        max_total_tokens: int | None = None,
        name: str = "chat",
    ) -> None:
        self.name = text("workload.name", name, "a name", "give one such as chat")
        self._schedule = Schedule(
            arrivals=arrivals,
            rate_rps=rate_rps,
            num_requests=num_requests,
            duration_s=duration_s,
        )
        self._turns = check_lengths("workload.turns", turns)
        self._message = check_lengths("workload.message", message)
        self._answer = check_lengths("workload.answer", answer)
        fix = "0 sends each turn as soon as the one before has ended"
        key = "workload.think_time_s"
        self._think_time_s = number(key, think_time_s, 0, _LONGEST_THINK_S, "seconds", fix)
        fix = "cv is standard deviation / mean"
        self._think_cv = number("workload.think_time_cv", think_time_cv, 0, 10, "(a ratio)", fix)
        self._texts: SharedTexts | None = None
        if system_prompts is not None:
            self._texts = check_texts("workload.system_prompts", system_prompts)
            self._system_prompts = self._texts.segments("system_prompts")
        self._max_total_tokens = self._check_max_total_tokens(max_total_tokens)

    def requests(self, seed: int) -> Iterator[Request]:
        """The first turns of all sessions, later ones inside, drawn in chunks as they are asked
        for."""
        names = ("turns", "messages", "answers", "think_times", "system_prompts")
        streams = {name: stream(seed, f"sessions/{name}") for name in names}
        sessions = self._sessions(streams, self._schedule.times_ns(seed))
        return _at_most(self._schedule.num_requests, sessions, self.name)

    def _sessions(
        self, streams: dict[str, np.random.Generator], chunks: Iterator[NDArray[np.int64]]
    ) -> Iterator[list[_Turn]]:
        first_id = 0
        for times_ns in chunks:
            turns = self._turns.draw(streams["turns"], len(times_ns))
            times_s = (times_ns / NS_PER_S).tolist()
            yield from self._sessions_at(streams, times_s, turns.tolist(), first_id)
            first_id += int(turns.sum())

    def _sessions_at(
        self,
        streams: dict[str, np.random.Generator],
        times_s: list[float],
        turns: list[int],
        first_id: int,
    ) -> Iterator[list[_Turn]]:
        """Sessions that start at `times_s` and are of as many `turns`."""
        total = sum(turns)
        messages = self._message.draw(streams["messages"], total).tolist()
        answers = self._answer.draw(streams["answers"], total).tolist()
        thinks_s = iter(self._think_times_s(streams["think_times"], total - len(turns)))
        starts = self._starts(streams["system_prompts"], len(turns))
        added = zip(range(first_id, first_id + total), messages, answers, strict=True)
        for time_s, size, start in zip(times_s, turns, starts, strict=True):
            delays_s = chain((time_s,), islice(thinks_s, size - 1))
            session = zip(delays_s, islice(added, size), strict=True)
            yield self._cut([_Turn(start, delay_s, *turn) for delay_s, turn in session])

    def _starts(self, rng: np.random.Generator, size: int) -> list[tuple[Segment, ...]]:
        """What each of `size` sessions starts with: its system prompt."""
        if self._texts is None:
            return [()] * size
        return [(self._system_prompts[pick],) for pick in self._texts.draw(rng, size).tolist()]

    def _think_times_s(self, rng: np.random.Generator, size: int) -> list[float]:
        if self._think_cv == 0:
            return [self._think_time_s] * size
        shape = self._think_cv**-2
        times_s = rng.standard_gamma(shape, size) * (self._think_time_s / shape)
        return [round(time_s, 9) for time_s in times_s.tolist()]

    def _cut(self, turns: list[_Turn]) -> list[_Turn]:
        """The turns before the one that would exceed `max_total_tokens`."""
        if self._max_total_tokens is None:
            return turns
        start = sum(segment.tokens for segment in turns[0].start)
        totals = accumulate((turn.message + turn.answer for turn in turns), initial=start)
        fitting = sum(total <= self._max_total_tokens for total in totals) - 1
        return turns[:fitting]

    def _check_max_total_tokens(self, value: int | None) -> int | None:
        if value is None:
            return None
        system_prompt = self._texts.lengths.max_tokens if self._texts else 0
        least = system_prompt + self._message.max_tokens + self._answer.max_tokens
        fix = "the longest system prompt, message and answer are to fit: raise it, or shorten them"
        return count("workload.max_total_tokens", value, least, MAX_TOKENS, "tokens", fix)


class _Turn(NamedTuple):
    """One turn: what its session starts with, the time after which it is sent (of the first one:
    when the session starts), its request id, and the tokens that it adds."""

    start: tuple[Segment, ...]
    delay_s: float
    request_id: int
    message: int
    answer: int


def _at_most(
    num_requests: int | None, sessions: Iterator[list[_Turn]], kind: str
) -> Iterator[Request]:
    """The sessions' first requests, as long as there are turns left of `num_requests`."""
    left = num_requests
    for session in sessions:
        turns = list(islice(session, left))
        yield _chain(turns, kind)
        if left is not None:
            left -= len(turns)
            if left == 0:
                return


def _chain(turns: list[_Turn], kind: str) -> Request:
    """The first turn's request, with the later ones inside."""
    said = turns[0].start
    prefixes = []
    for turn in turns:
        prefixes.append(said)
        said = (
            *said,
            Segment(Source.PROMPT, turn.request_id, turn.message),
            Segment(Source.OUTPUT, turn.request_id, turn.answer),
        )
    request: Request | None = None
    for turn, prefix in zip(reversed(turns), reversed(prefixes), strict=True):
        request = Request(
            request_id=turn.request_id,
            scheduled_s=turn.delay_s,
            prompt_tokens=sum(segment.tokens for segment in prefix) + turn.message,
            output_tokens=turn.answer,
            kind=kind,
            prefix=prefix,
            next_turn=request,
        )
    assert request is not None
    return request
