"""Failed allocations, one incident a waiting episode, a preemption or a step, with its layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from bench.engine.kv_memory import KvMemory
from bench.engine.sequence import Sequence
from bench.incidents.rules import KvState, Layer, card_layer, headroom_layer, kv_layer
from bench.metrics.tally import Tally

State = Callable[[], dict[str, Any]]


class Holders(Protocol):
    """Who holds memory and who waits for it: the engine."""

    memory: KvMemory

    @property
    def running(self) -> list[Sequence]: ...
    @property
    def waiting_count(self) -> int: ...


class Room(Protocol):
    """Memory of a fragmentation source, as bench.sources.room has it."""

    wanted_bytes: int | None
    error: str | None

    @property
    def left_bytes(self) -> int: ...


class Refused(NamedTuple):
    """What PyTorch said, and the bytes of the block that it refused and of all that was still
    needed; None where they are not known: then what it asked the driver for stands for them."""

    error: str
    nbytes: int | None = None
    needed_bytes: int | None = None

    @classmethod
    def by(cls, error: Exception) -> Refused:
        """What an error says, which may know the sizes (bench.engine.activations)."""
        sizes = (getattr(error, name, None) for name in ("nbytes", "needed_bytes"))
        return cls(str(error), *sizes)


class IncidentLog:
    """Collects incidents with the state of memory at the first refusal, and counts all refusals.

    A request that waits for memory is one incident with its count of refusals, closed when the
    wait ends. `allocator_now` reads the allocator where it was not asked, `allocator_at_failure`
    tells how it was when it refused memory last.
    """

    def __init__(self, allocator_now: State, allocator_at_failure: State = dict) -> None:
        self.closed: list[dict[str, Any]] = []
        self.count = 0
        self.failures: dict[tuple[str, str | None], Tally] = {}
        """Bytes of every refused request, by kind and layer."""
        self._open: dict[int | str, dict[str, Any]] = {}  # by sequence, or by source
        self._now = allocator_now
        self._at_failure = allocator_at_failure

    def watch(self, holders: Holders) -> None:
        """Whose memory incidents are about."""
        self._holders = holders

    def reserve_refused(self, sequence: Sequence, tokens: int, now: float) -> None:
        """The head of the queue was refused `tokens` slots."""
        incident = self._open.get(sequence.id)
        if incident is None:
            wanted = {"request_id": sequence.id, "wanted_tokens": tokens}
            branches = sequence.demand.branches if tokens > sequence.demand.prompt_tokens else 1
            needed = self._holders.memory.needed_bytes(sequence, tokens, branches)
            incident = self._kv_incident("reserve_refused", wanted, needed, now)
            self._open[sequence.id] = incident
        self._refused_again(incident, 1, now)

    def wait_ended(self, sequence: Sequence, now: float) -> None:
        """The wait for memory, if there was one, is over: admitted, failed or cancelled."""
        incident = self._open.pop(sequence.id, None)
        if incident is not None:
            self.closed.append(incident | {"waited_s": now - incident["first_s"]})

    def extend_refused(
        self, sequence: Sequence, tokens: int, now: float, preempted: int | None
    ) -> None:
        """A running sequence was refused room for `tokens` tokens in all."""
        wanted = {"request_id": sequence.id, "wanted_tokens": tokens}
        parents = sequence.lineage.parents if sequence.lineage is not None else None
        branches = max(sequence.branches, len(parents or ()))
        needed = self._holders.memory.needed_bytes(sequence, tokens, branches)
        incident = self._kv_incident("extend_refused", wanted, needed, now)
        self._refused_again(incident, 1, now)
        self.closed.append(incident | {"preempted_request": preempted})

    def activation_refused(self, now: float, refused: Refused, preempted: int | None) -> None:
        """A step's activations did not fit. With nobody to preempt the run is over."""
        incident = self._card_incident("activation_refused", {}, refused, now)
        self._refused_again(incident, 1, now)
        over = {"preempted_request": preempted, "ended_run": preempted is None}
        self.closed.append(incident | over)

    def activation_refused_twice(self, now: float) -> None:
        """After the preemption of the last incident the step did not fit either: the run is
        over."""
        self._refused_again(self.closed[-1], 1, now)
        self.closed[-1]["ended_run"] = True

    def source_refused(self, source: str, room: Room, refusals: int, now: float) -> None:
        """A fragmentation source was refused memory in a step, so often."""
        incident = self._open.get(source)
        if incident is None:
            incident = self._open[source] = self._source_incident(source, room, now)
        self._refused_again(incident, refusals, now)

    def source_served(self, source: str, now: float) -> None:
        """The source got all that it asked for in a step."""
        incident = self._open.pop(source, None)
        if incident is not None:
            self.closed.append(incident | {"waited_s": now - incident["first_s"]})

    def _kv_incident(
        self, kind: str, wanted: dict[str, Any], needed: int, now: float
    ) -> dict[str, Any]:
        memory = self._holders.memory
        kv, refusal = memory.state(self._holders.running), memory.backend.refusal
        layer = kv_layer(kv, refusal.nbytes, needed, in_one_piece=refusal.in_one_piece)
        allocator = self._now() if refusal.error is None else self._at_failure()
        asked = {"wanted_bytes": refusal.nbytes, "needed_bytes": needed, "error": refusal.error}
        return self._begin(kind, layer, wanted | asked, kv, allocator, now)

    def _card_incident(
        self, kind: str, wanted: dict[str, Any], refused: Refused, now: float
    ) -> dict[str, Any]:
        kv = self._holders.memory.state(self._holders.running)
        allocator = self._at_failure()
        tried = allocator.get("tried_bytes")
        nbytes, needed, layer = refused.nbytes or tried, refused.needed_bytes or tried, None
        if allocator and needed is not None:
            kept_bytes = allocator["reserved_bytes"] - allocator["allocated_bytes"]
            layer = card_layer(kv, needed, allocator["driver_free_bytes"] + kept_bytes)
        asked = {"wanted_bytes": nbytes, "needed_bytes": needed, "error": refused.error}
        return self._begin(kind, layer, wanted | asked, kv, allocator, now)

    def _source_incident(self, source: str, room: Room, now: float) -> dict[str, Any]:
        kind, wanted = "source_refused", {"source": source}
        if room.error is not None:
            refused = Refused(room.error, room.wanted_bytes, room.wanted_bytes)
            return self._card_incident(kind, wanted, refused, now)
        assert room.wanted_bytes is not None  # a limit refuses what is known
        kv = self._holders.memory.state(self._holders.running)
        layer = headroom_layer(kv, room.wanted_bytes, room.left_bytes)
        asked = {"wanted_bytes": room.wanted_bytes, "needed_bytes": room.wanted_bytes}
        asked |= {"headroom_left_bytes": room.left_bytes}
        return self._begin(kind, layer, wanted | asked | {"error": None}, kv, self._now(), now)

    def _begin(
        self,
        kind: str,
        layer: Layer | None,
        wanted: dict[str, Any],
        kv: KvState,
        allocator: dict[str, Any],
        now: float,
    ) -> dict[str, Any]:
        self.count += 1
        holders = self._holders
        who = {
            "active_sequences": len(holders.running),
            "waiting": holders.waiting_count,
            "live_tokens": kv.token_states // holders.memory.account.token_bytes,
        }
        times = {"first_s": now, "last_s": now, "refusals": 0}
        return {"kind": kind, "layer": layer} | wanted | times | who | _terms(kv) | allocator

    def _refused_again(self, incident: dict[str, Any], refusals: int, now: float) -> None:
        incident["refusals"] += refusals
        incident["last_s"] = now
        key = incident["kind"], incident["layer"]
        self.failures.setdefault(key, Tally()).add(incident["wanted_bytes"] or 0, refusals)

    @property
    def refusals(self) -> int:
        """All of them so far."""
        return sum(tally.counts.total() for tally in self.failures.values())

    def drain(self) -> list[dict[str, Any]]:
        """Incidents closed since the last call."""
        drained, self.closed = self.closed, []
        return drained

    def finish(self) -> None:
        """Closes what still waits."""
        self.closed += [incident | {"waited_s": None} for incident in self._open.values()]
        self._open.clear()


def _terms(kv: KvState) -> dict[str, Any]:
    return {
        "kv_budget_bytes": kv.budget,
        "held_bytes": kv.held,
        "usable_bytes": kv.usable,
        "token_states_bytes": kv.token_states,
        "token_blocks_bytes": kv.token_blocks,
        "reservation_bytes": kv.reservation,
        "internal_bytes": kv.internal,
        "rounding_bytes": kv.rounding,
        "cached_bytes": kv.cached,
        "free_bytes": kv.free,
        "kv_pooled": kv.pooled,
    }
