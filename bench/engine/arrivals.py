"""When requests are sent: at their own times, as later turns, or when a user is free again."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from bench.shares import Shares
from workloads.base import ClosedLoop, Request


class Arrivals(Protocol):
    """Requests by time. `next_s` is when the next one is to be sent, infinity if none is known."""

    @property
    def next_s(self) -> float: ...

    def pop(self) -> Request:
        """The next request, of which there must be one, with the time at which it is sent."""
        ...

    def ended(self, request: Request, end_s: float) -> None:
        """What follows it can be sent."""
        ...


NS_PER_S = 1_000_000_000

ROUND_TRIP_S = 0.01
"""What a user of a closed loop needs for a session that ended as it was sent, refused or left: else
one would follow the other at the same moment, for ever."""


class LaterTurns:
    """A heap of requests, each sent a while after the one before it ended."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Request]] = []

    @property
    def next_s(self) -> float:
        return self._heap[0][0] if self._heap else math.inf

    def add(self, request: Request, at_s: float) -> None:
        """Has the request sent then, at the next whole nanosecond: a record of it that is sent
        again comes at the very same time."""
        at_s = math.ceil(at_s * NS_PER_S) / NS_PER_S
        timed = replace(request, scheduled_s=at_s)
        heapq.heappush(self._heap, (at_s, request.request_id, timed))

    def pop(self) -> Request:
        return heapq.heappop(self._heap)[2]


class OpenLoop:
    """Each session at its time, whatever became of those before."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._sessions = iter(requests)
        self._upcoming = next(self._sessions, None)
        self._turns = LaterTurns()

    @property
    def next_s(self) -> float:
        return min(self._first_s, self._turns.next_s)

    @property
    def _first_s(self) -> float:
        return math.inf if self._upcoming is None else self._upcoming.scheduled_s

    def pop(self) -> Request:
        upcoming = self._upcoming
        if upcoming is None or self._turns.next_s < self._first_s:
            return self._turns.pop()
        self._upcoming = next(self._sessions, None)
        return upcoming

    def ended(self, request: Request, end_s: float) -> None:
        turn = request.next_turn
        if turn is not None:
            self._turns.add(turn, end_s + turn.scheduled_s)


class ClosedUsers:
    """Users of a closed loop: each sends a session when its last one has ended."""

    def __init__(self, requests: Iterable[Request], loop: ClosedLoop) -> None:
        self._until_s = loop.until_s
        self._shares = Shares(requests, loop.users, range(loop.users))
        self._due = LaterTurns()
        self._user_of: dict[int, int] = {}  # by request
        for user in range(loop.users):
            self._start(user, user * loop.stagger_s)

    @property
    def next_s(self) -> float:
        return self._due.next_s

    def pop(self) -> Request:
        return self._due.pop()

    def ended(self, request: Request, end_s: float) -> None:
        user = self._user_of.pop(request.request_id)
        free_s = end_s if end_s > request.scheduled_s else end_s + ROUND_TRIP_S
        turn = request.next_turn
        if turn is None:
            self._start(user, free_s)
        else:
            self._add(user, turn, free_s + turn.scheduled_s)

    def _start(self, user: int, free_s: float) -> None:
        if free_s >= self._until_s:
            return
        session = next(self._shares.of(user), None)
        if session is not None and free_s + session.scheduled_s < self._until_s:
            self._add(user, session, free_s + session.scheduled_s)

    def _add(self, user: int, request: Request, at_s: float) -> None:
        self._user_of[request.request_id] = user
        self._due.add(request, at_s)


class NoArrivals:
    """Nothing comes any more, whatever ends."""

    next_s = math.inf

    def pop(self) -> Request:
        raise LookupError("nothing comes")

    def ended(self, request: Request, end_s: float) -> None:
        pass


def arrivals(requests: Iterable[Request], loop: ClosedLoop | None) -> Arrivals:
    """Those of a workload, in an open loop where `loop` is None."""
    return OpenLoop(requests) if loop is None else ClosedUsers(requests, loop)
