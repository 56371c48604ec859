"""Clients of requests that are sent in process: they leave, or read slowly, as over HTTP."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

from bench.engine.engine import Engine
from bench.engine.sequence import Sequence

LEAST_LOOKED_THROUGH = 1024
"""Things that clients are to do, of which those are forgotten that will not be done."""

Act = Callable[[Sequence, float], None]
"""What the client of a sequence does, at a time."""


class Clients:
    """Clients that do more than wait, in the time of an engine: those of `watch`ed sequences.

    A slow reader has `buffer_tokens` tokens kept for it. Its sequence is paused, its memory held,
    while that many are unread, and goes on when half of them are: as a server does whose
    connections do not empty (bench/serve/engine_client.py). None keeps as many as there are.
    """

    def __init__(self, engine: Engine, buffer_tokens: int | None) -> None:
        self._engine = engine
        self._buffer_tokens = buffer_tokens
        self._due: list[tuple[float, int, Sequence, Act]] = []
        self._look_through_at = LEAST_LOOKED_THROUGH
        self._order = itertools.count()
        self._leave_after: dict[Sequence, int] = {}
        self._readers: dict[Sequence, _Reader] = {}

    @property
    def next_s(self) -> float:
        """When a client does something next, infinity if never."""
        while self._due and self._due[0][2].status is not None:
            heapq.heappop(self._due)  # it was faster than its client
        return self._due[0][0] if self._due else math.inf

    def act(self, now: float) -> None:
        """Has the next client do what it does, as of `now`."""
        *_, sequence, act = heapq.heappop(self._due)
        act(sequence, now)

    def watch(self, sequence: Sequence) -> None:
        """A sequence was sent and goes on."""
        client, streams = sequence.request.client, not self._engine.answers_at_once
        if client.leave is not None:
            if client.leave.after_s is not None:
                self._at(sequence.sent_s + client.leave.after_s, sequence, self._leave)
            if client.leave.after_tokens is not None and streams:
                self._leave_after[sequence] = client.leave.after_tokens
        if client.tokens_per_s is not None and self._buffer_tokens is not None and streams:
            self._readers[sequence] = _Reader(client.tokens_per_s)
        if sequence in self._leave_after or sequence in self._readers:
            sequence.followed = True
            self._engine.on_token = self._on_token

    def ended(self, sequence: Sequence) -> None:
        """A sequence has ended, however it did."""
        self._leave_after.pop(sequence, None)
        self._readers.pop(sequence, None)

    def _at(self, at_s: float, sequence: Sequence, act: Act) -> None:
        if len(self._due) >= self._look_through_at:  # those of clients that were answered before
            self._due = [due for due in self._due if due[2].status is None]
            heapq.heapify(self._due)
            self._look_through_at = 2 * len(self._due) + LEAST_LOOKED_THROUGH
        heapq.heappush(self._due, (at_s, next(self._order), sequence, act))

    def _leave(self, sequence: Sequence, now: float) -> None:
        leave = sequence.request.client.leave
        assert leave is not None
        self._engine.cancel(sequence, now, f"the client left ({leave.kind})")

    def _on_token(self, sequence: Sequence, token_ids: list[int] | None) -> None:
        now = sequence.last_token_s
        assert now is not None
        if sequence.generated >= self._leave_after.get(sequence, math.inf):
            self._at(now, sequence, self._leave)  # when the step is over
        reader = self._readers.get(sequence)
        if reader is None:
            return
        assert self._buffer_tokens is not None
        if reader.unread(sequence.generated, now) >= self._buffer_tokens:
            sequence.paused = True
            at_s = now + reader.seconds_to(self._buffer_tokens // 2)
            self._at(at_s, sequence, self._resume)

    def _resume(self, sequence: Sequence, now: float) -> None:
        sequence.paused = False


class _Reader:
    """A client that takes a token every 1 / `tokens_per_s` seconds, from the first one on."""

    def __init__(self, tokens_per_s: float) -> None:
        self._tokens_per_s = tokens_per_s
        self._unread = 0.0
        self._came = 0
        self._at_s = 0.0

    def unread(self, generated: int, now: float) -> float:
        """Tokens that wait for it, now that so many have come in all."""
        read = (now - self._at_s) * self._tokens_per_s
        self._unread = max(self._unread - read, 0.0) + (generated - self._came)
        self._came, self._at_s = generated, now
        return self._unread

    def seconds_to(self, tokens: int) -> float:
        """Until no more than so many wait, if none comes."""
        return (self._unread - tokens) / self._tokens_per_s
