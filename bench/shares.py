"""Who sends which request: the workload split among users, wherever they run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from workloads.base import Request


class Shares:
    """First turn `i` of the workload belongs to user `i mod users`, later turns to who sent the
    first. A worker draws the whole workload and keeps the shares of `mine`, so that any number of
    workers together send what one would."""

    def __init__(self, requests: Iterable[Request], users: int, mine: Iterable[int]) -> None:
        self._requests = enumerate(requests)
        self._users = users
        self._waiting: dict[int, deque[Request]] = {user: deque() for user in mine}

    def of(self, user: int) -> Iterator[Request]:
        """The user's first turns in order."""
        waiting = self._waiting[user]
        while waiting or self._draw_until(waiting):
            yield waiting.popleft()

    def _draw_until(self, waiting: deque[Request]) -> bool:
        """Draws until there is one for this user; whether there was."""
        for index, request in self._requests:
            owner = self._waiting.get(index % self._users)
            if owner is not None:
                owner.append(request)
            if owner is waiting:
                return True
        return False
