"""Refusals of memory, one incident a waiting episode or a preemption."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.engine.sequence import Sequence

Snapshot = Callable[[], dict[str, Any]]


class IncidentLog:
    """Collects incidents with the state of memory at the first refusal.

    A request that waits for memory is one incident with its count of refusals, closed when the
    wait ends.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.closed: list[dict[str, Any]] = []
        self.count = 0
        self._open: dict[int | str, dict[str, Any]] = {}  # by sequence, or by source
        self._snapshot = snapshot

    def reserve_refused(self, sequence: Sequence, tokens: int, now: float) -> None:
        """The head of the queue was refused `tokens` slots."""
        incident = self._open.get(sequence.id)
        if incident is None:
            incident = self._new("reserve_refused", sequence, tokens, now)
            self._open[sequence.id] = incident
        incident["refusals"] += 1
        incident["last_s"] = now

    def wait_ended(self, sequence: Sequence, now: float) -> None:
        """The wait for memory, if there was one, is over: admitted, failed or cancelled."""
        incident = self._open.pop(sequence.id, None)
        if incident is not None:
            self.closed.append(incident | {"waited_s": now - incident["first_s"]})

    def extend_refused(
        self, sequence: Sequence, tokens: int, now: float, preempted: int | None
    ) -> None:
        """A running sequence was refused room for `tokens` tokens in all."""
        incident = self._new("extend_refused", sequence, tokens, now)
        self.closed.append(incident | {"refusals": 1, "preempted_request": preempted})

    def activation_refused(self, now: float, error: str, preempted: int | None) -> None:
        """A step's activations did not fit."""
        self.count += 1
        self.closed.append(
            {"kind": "activation_refused", "first_s": now, "last_s": now, "refusals": 1}
            | {"error": error, "preempted_request": preempted}
            | self._snapshot()
        )

    def source_refused(self, source: str, nbytes: int | None, refusals: int, now: float) -> None:
        """A fragmentation source was refused memory in a step, so often, `nbytes` the last time
        (None: not known)."""
        incident = self._open.get(source)
        if incident is None:
            wanted = {"source": source, "wanted_bytes": nbytes}
            incident = self._open[source] = self._begin("source_refused", wanted, now)
        incident["refusals"] += refusals
        incident["last_s"] = now

    def source_served(self, source: str, now: float) -> None:
        """The source got all that it asked for in a step."""
        incident = self._open.pop(source, None)
        if incident is not None:
            self.closed.append(incident | {"waited_s": now - incident["first_s"]})

    def _new(self, kind: str, sequence: Sequence, tokens: int, now: float) -> dict[str, Any]:
        return self._begin(kind, {"request_id": sequence.id, "wanted_tokens": tokens}, now)

    def _begin(self, kind: str, wanted: dict[str, Any], now: float) -> dict[str, Any]:
        self.count += 1
        times = {"first_s": now, "last_s": now, "refusals": 0}
        return {"kind": kind} | wanted | times | self._snapshot()

    def drain(self) -> list[dict[str, Any]]:
        """Incidents closed since the last call."""
        drained, self.closed = self.closed, []
        return drained

    def finish(self) -> None:
        """Closes what still waits."""
        self.closed += [incident | {"waited_s": None} for incident in self._open.values()]
        self._open.clear()
