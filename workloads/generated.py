"""Generated traffic: kinds in given shares, on one schedule."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals.base import NS_PER_S, Arrivals
from workloads.arrivals.closed_loop import ClosedLoopArrivals
from workloads.base import PATIENT, Request
from workloads.clients import Clients, Drawn, check_clients
from workloads.formats.base import facts_by_setting
from workloads.kinds.base import Kind
from workloads.schedule import Schedule
from workloads.settings import MAX_TOKENS, count, refusal, text
from workloads.streams import stream

_SHARES_TOLERANCE = 1e-6


class GeneratedWorkload:
    """Requests and sessions of several kinds, drawn independently, the first at 0 s.

    Starts and ends as workloads/schedule.py says, a session being one arrival; `num_requests`
    counts the requests of all turns, and the last session is cut for it. `max_total_tokens` bounds
    prompt + output of each request, as its kind says. `clients` are those of kinds that have none
    of their own.

    Arrivals, the choice of kinds, and what each kind draws come from streams of their own:
    changing one leaves the others' numbers alone, and the n-th arrival of a kind is the same
    whatever the shares. Requests are numbered as they are drawn, turns that come to nothing
    included: another limit or rate leaves the numbers of those that remain, and so their tokens,
    alone. Raises WorkloadError for a setting that cannot be used.
    """

    def __init__(
        self,
        *,
        kinds: Mapping[str, Kind],
        arrivals: Arrivals | ClosedLoopArrivals,
        rate_rps: float | None = None,
        num_requests: int | None = None,
        duration_s: float | None = None,
        max_total_tokens: int | None = None,
        clients: Clients | None = None,
        name: str = "mixed",
    ) -> None:
        self.name = text("workload.name", name, "a name", "give one such as mixed")
        self._schedule = Schedule(
            arrivals=arrivals,
            rate_rps=rate_rps,
            num_requests=num_requests,
            duration_s=duration_s,
        )
        self.closed_loop = self._schedule.closed_loop
        self._arrivals = arrivals
        self._clients = check_clients("workload.clients", clients)
        self._kinds = _check_kinds(kinds)
        self._max_total_tokens = _check_max_total_tokens(max_total_tokens, self._kinds)

    def requests(self, seed: int) -> Iterator[Request]:
        """The requests of one run, drawn in chunks as they are asked for."""
        left = self._schedule.num_requests or math.inf
        return self._drawn(self._schedule.times_ns(seed), _Mix(self._kinds, seed), seed, left)

    def trace_facts(self) -> dict[str, dict[str, Any]]:
        pairs = {
            f"workload.kinds.{name}.pairs": getattr(kind, "pairs", None)
            for name, kind in self._kinds.items()
        }
        return facts_by_setting({"workload.arrivals": self._arrivals, **pairs})

    def _drawn(
        self, chunks: Iterator[NDArray[np.int64]], mix: _Mix, seed: int, left: float
    ) -> Iterator[Request]:
        names = list(self._kinds)
        drafts = [
            kind.drafts(name, seed, self._max_total_tokens) for name, kind in self._kinds.items()
        ]
        clients = [self._of_clients(name, kind, seed) for name, kind in self._kinds.items()]
        next_id = 0
        for times_ns in chunks:
            chosen = mix.choose(len(times_ns))
            sizes = np.bincount(chosen, minlength=len(names)).tolist()
            drawn = [iter(draw(size)) for draw, size in zip(drafts, sizes, strict=True)]
            for time_s, kind in zip((times_ns / NS_PER_S).tolist(), chosen.tolist(), strict=True):
                draft = next(drawn[kind])
                turns = int(min(draft.turns, left))
                request = draft.make(next_id, time_s, turns)
                next_id += draft.ids
                yield _with_clients(request, clients[kind], draft.ids)
                left -= turns
                if not left:
                    return

    def _of_clients(self, name: str, kind: Kind, seed: int) -> Drawn | None:
        clients = kind.clients or self._clients
        return None if clients is None else clients.drawn(stream(seed, f"clients/{name}"))


class _Mix:
    """Which kind comes next, in one run."""

    def __init__(self, kinds: Mapping[str, Kind], seed: int) -> None:
        upper = np.cumsum([kind.share for kind in kinds.values()])
        self._upper = upper / upper[-1]
        self._rng = stream(seed, "kinds")

    def choose(self, size: int) -> NDArray[np.int64]:
        """The next `size` kinds, by number."""
        return np.searchsorted(self._upper, self._rng.random(size), side="right")


def _with_clients(request: Request, clients: Drawn | None, ids: int) -> Request:
    """The request and its later turns, each with a client; of `ids` turns, of which some may have
    come to nothing, clients are drawn."""
    if clients is None:
        return request
    turns = [request]
    while (turn := turns[-1].next_turn) is not None:
        turns.append(turn)
    drawn = [clients(turn) for turn in turns]
    for _ in range(ids - len(turns)):
        clients(request)
    if all(client == PATIENT for client in drawn):
        return request
    later: Request | None = None
    for turn, client in zip(reversed(turns), reversed(drawn), strict=True):
        later = replace(turn, client=client, next_turn=later)
    assert later is not None
    return later


def _check_kinds(kinds: Any) -> dict[str, Kind]:
    if not isinstance(kinds, Mapping) or not kinds:
        fix = "select some, as conf/workload/mixed.yaml does"
        raise refusal("workload.kinds", kinds, "a mapping of at least one kind", fix)
    for name, kind in kinds.items():
        setting = f"workload.kinds.{name}"
        if not isinstance(kind, Kind):
            fix = "give it a _target_ and a share, as the files of conf/workload/kinds do"
            raise refusal(setting, kind, "a kind of traffic", fix)
        kind.check(setting)
        check_clients(f"{setting}.clients", kind.clients)
    total = math.fsum(kind.share for kind in kinds.values())
    if abs(total - 1) > _SHARES_TOLERANCE:
        shares = ", ".join(f"{name} {kind.share:g}" for name, kind in kinds.items())
        fix = f"change the shares ({shares}), as in workload.kinds.{next(iter(kinds))}.share=0.5"
        raise refusal("The sum of workload.kinds.*.share", round(total, 9), "1", fix)
    return dict(kinds)


def _check_max_total_tokens(value: Any, kinds: Mapping[str, Kind]) -> int | None:
    if value is None:
        return None
    name, longest = max(kinds.items(), key=lambda item: item[1].least_total_tokens())
    least = longest.least_total_tokens()
    fix = f"raise it, or shorten the prompts of workload.kinds.{name}, which leave no output"
    return count("workload.max_total_tokens", value, least, MAX_TOKENS, "tokens", fix)
