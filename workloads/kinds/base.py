"""The contract of a kind of traffic, and what kinds share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from workloads.base import Request
from workloads.clients import Clients
from workloads.settings import number


class Draft(NamedTuple):
    """A request, or a session of `turns` requests, that has no time and no number yet.

    `make(request_id, time_s, turns)` makes it, its first request numbered `request_id`, of at most
    that many turns. `ids` numbers are its own, from that one on.
    """

    make: Callable[[int, float, int], Request]
    ids: int = 1
    turns: int = 1


Drafts = Callable[[int], Sequence[Draft]]
"""Draws the next so many. Two draws in a row give what one would."""


@runtime_checkable
class Kind(Protocol):
    """One kind of traffic: its share of all that arrives (0 to 1), and what it is like."""

    share: float
    clients: Clients | None
    """Of its requests; None takes the workload's."""

    def least_total_tokens(self) -> int:
        """The smallest limit of prompt + output that leaves every request an output."""
        ...

    def check(self, setting: str) -> None:
        """Raises WorkloadError for the first setting that cannot be used; `setting` is where the
        kind is."""
        ...

    def drafts(self, name: str, seed: int, max_total_tokens: int | None) -> Drafts:
        """Starts the random streams of one run, which are the kind's own: `name` tells them, and
        the texts that its requests share, from other kinds'."""
        ...


def check_share(setting: str, share: Any) -> None:
    """Raises WorkloadError unless it is a share."""
    number(f"{setting}.share", share, 0, 1, "(a share of what arrives)", "use 0.2 for 20 %")
