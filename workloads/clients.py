"""What clients do beside waiting: some leave before the answer's end, some read slowly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from workloads.base import PATIENT, Client, Leave, Request
from workloads.settings import MAX_TOKENS, number, refusal

LEAVING = ("after_s", "after_tokens", "before_first_token", "in_prefill")
_CHUNK = 1024
_LONGEST_S = 1e6

Drawn = Callable[[Request], Client]
"""Gives the next request its client."""


class Clients:
    """A `leave_share` of requests is left by its client, in one of the ways `leave`, all alike
    likely, and a `slow_share` is read at `slow_tokens_per_s` tokens/s.

    after_s: so many seconds after it was sent, uniform between two. after_tokens: with so many
    tokens, likewise, but not with the last one. before_first_token: up to
    `leave_before_first_token_s` after it was sent, in_prefill: up to `leave_prefill_s_per_token`
    times its prompt's tokens; both are gone when the first token comes.

    Whether, how, when and how slowly are four numbers of one stream for each request, drawn
    whatever the settings: changing one setting leaves what the others decide alone. Raises
    WorkloadError for a setting that cannot be used.
    """

    def __init__(
        self,
        *,
        leave_share: float = 0.0,
        leave: Sequence[str] = LEAVING,
        leave_after_s: Sequence[float] = (0.1, 5.0),
        leave_after_tokens: Sequence[int] = (1, 64),
        leave_before_first_token_s: float = 0.05,
        leave_prefill_s_per_token: float = 1e-4,
        slow_share: float = 0.0,
        slow_tokens_per_s: float = 5.0,
    ) -> None:
        self._leave_share = _share("leave_share", leave_share)
        self._ways = _check_ways(leave)
        self._after_s = _range("leave_after_s", leave_after_s, 0, _LONGEST_S, "seconds")
        least, most = _range("leave_after_tokens", leave_after_tokens, 1, MAX_TOKENS, "tokens")
        self._after_tokens = int(least), int(most)
        fix = "0 leaves at once"
        name = _setting("leave_before_first_token_s")
        before_s = number(name, leave_before_first_token_s, 0, _LONGEST_S, "seconds", fix)
        self._before_first_token_s = before_s
        name = _setting("leave_prefill_s_per_token")
        per_token_s = number(name, leave_prefill_s_per_token, 0, 10, "seconds a token", fix)
        self._prefill_s_per_token = per_token_s
        self._slow_share = _share("slow_share", slow_share)
        fix = "5 is about how fast people read"
        name = _setting("slow_tokens_per_s")
        self._slow_tokens_per_s = number(name, slow_tokens_per_s, 1e-3, 1e6, "tokens/s", fix)

    def drawn(self, rng: np.random.Generator) -> Drawn:
        """Clients of one run's requests, in the order in which they are asked for."""
        rows = _rows(rng)
        return lambda request: self._client(request, *next(rows))

    def _client(
        self, request: Request, leaves: float, way: float, moment: float, slow: float
    ) -> Client:
        stays, reads_all = leaves >= self._leave_share, slow >= self._slow_share
        if stays and reads_all:
            return PATIENT
        return Client(
            None if stays else self._leave(request, way, moment),
            None if reads_all else self._slow_tokens_per_s,
        )

    def _leave(self, request: Request, way: float, moment: float) -> Leave | None:
        name = self._ways[int(way * len(self._ways))]
        if name == "after_s":
            least_s, most_s = self._after_s
            return Leave(name, after_s=least_s + moment * (most_s - least_s))
        if name == "after_tokens":
            least, most = self._after_tokens
            tokens = least + int(moment * (most - least + 1))
            if request.output_tokens == 1:  # who has the whole answer cannot leave it
                return None
            return Leave(name, after_tokens=min(tokens, request.output_tokens - 1))
        within_s = self._before_first_token_s
        if name == "in_prefill":
            within_s = self._prefill_s_per_token * request.prompt_tokens
        return Leave(name, after_s=moment * within_s, after_tokens=1)


def _rows(rng: np.random.Generator) -> Iterator[list[float]]:
    while True:
        yield from rng.random((_CHUNK, 4)).tolist()


def check_clients(setting: str, value: Any) -> Clients | None:
    """`value`, or WorkloadError unless it is clients or None."""
    if value is not None and not isinstance(value, Clients):
        fix = "select some with workload/clients=leaving (or slow)"
        raise refusal(setting, value, "null or clients", fix)
    return value


def _setting(name: str) -> str:
    return f"{name} of clients"


def _share(name: str, value: Any) -> float:
    return number(_setting(name), value, 0, 1, "(a share of requests)", "use 0.2 for 20 %")


def _check_ways(value: Any) -> tuple[str, ...]:
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    if not listed or not value or any(way not in LEAVING for way in value):
        allowed = f"a list of some of {', '.join(LEAVING)}"
        raise refusal(_setting("leave"), value, allowed, "use [after_tokens] for one")
    return tuple(value)


def _range(name: str, value: Any, least: float, most: float, unit: str) -> tuple[float, float]:
    kind = int if unit == "tokens" else int | float
    listed = isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2
    if listed and all(isinstance(each, kind) and not isinstance(each, bool) for each in value):
        first, last = value
        if least <= first <= last <= most:
            return first, last
    allowed = f"two numbers of {unit} from {least:,} to {most:,.12g}, the smaller first"
    raise refusal(_setting(name), value, allowed, "give a range such as [1, 64]")
