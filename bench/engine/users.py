"""The users of a workload, in process: they send its requests and do what their clients do."""

from __future__ import annotations

from collections.abc import Iterable

from bench.engine.arrivals import Arrivals, NoArrivals, arrivals
from bench.engine.clients import Clients
from bench.engine.engine import Engine
from bench.engine.sequence import Sequence
from bench.metrics.status import Status
from workloads.base import PATIENT, ClosedLoop, Request

STREAM_BUFFER_TOKENS = 64
"""What a server of bench/serve keeps for a reader by default."""


class Users:
    """Sends `requests` to `engine`, each at its time, and hears of every end there.

    What falls due while the engine computes is done, in order of time, when its step has ended.
    """

    def __init__(
        self,
        engine: Engine,
        requests: Iterable[Request],
        loop: ClosedLoop | None = None,
        buffer_tokens: int | None = STREAM_BUFFER_TOKENS,
    ) -> None:
        self._engine = engine
        self._arrivals: Arrivals = arrivals(requests, loop)
        self._clients = Clients(engine, buffer_tokens)
        engine.on_ends.append(self._on_end)

    @property
    def next_s(self) -> float:
        """When something is done next, infinity if nothing is known to be."""
        return min(self._arrivals.next_s, self._clients.next_s)

    def act(self, now: float) -> None:
        """Does all that is due by `now`."""
        while (sends_s := self._arrivals.next_s) <= now or self._clients.next_s <= now:
            if self._clients.next_s < sends_s:
                self._clients.act(now)
            else:
                self._send(self._arrivals.pop())

    def leave(self, now: float) -> None:
        """Nothing more is sent, and what waits is given up; what runs is waited for."""
        self._arrivals = NoArrivals()
        self._engine.send_away(now)

    def _send(self, request: Request) -> None:
        sequence = self._engine.add(request, request.scheduled_s)
        if request.client is not PATIENT and sequence.status is None:
            self._clients.watch(sequence)

    def _on_end(self, sequence: Sequence, status: Status, cause: str | None, end_s: float) -> None:
        self._clients.ended(sequence)
        self._arrivals.ended(sequence.request, end_s)
