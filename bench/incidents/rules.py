"""Which layer a failed allocation comes from, by rules on what is cheap to know when it fails.

Note [Layers]
Three changes are thought of, each on top of the one before: free memory lies in one piece; memory
holds live tokens alone (no reservation, no unfilled slot); KV memory is not there. The layer is
the first change that lets the allocation succeed: `allocator`, `kv_policy`, `workspace`; where
none does it is `capacity`. bench/incidents/counterfactual.py makes the changes and tries; here
they are sums of counters, and nothing is simulated.

A KV request is bounded by the KV budget, of which only KV memory takes. So the third change says
nothing of it: what live tokens leave no room for is capacity.
An allocation beside KV memory (activations, fragmentation sources) is bounded by the card. Where
KV memory is a pool, the second change gives back blocks to the pool, which help nobody else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Layer(StrEnum):
    """What would have had to be otherwise."""

    CAPACITY = "capacity"
    """Live tokens really need the memory."""

    KV_POLICY = "kv_policy"
    """Reservations, unfilled slots or a second copy hold it."""

    ALLOCATOR = "allocator"
    """Enough is free, but not in one piece, or cached in segments that cannot be released."""

    WORKSPACE = "workspace"
    """KV memory took the headroom that something beside it needed."""


@dataclass(frozen=True, slots=True)
class KvState:
    """KV memory when an allocation failed, in bytes; the six terms add up to the budget.

    What is unfilled is split by the lengths that requests asked for: what they will fill if they
    run to their ends, and what they never will. `pooled` as in backends.base.Backend.
    """

    budget: int
    token_states: int
    reservation: int
    internal: int
    rounding: int
    cached: int
    free: int
    pooled: bool

    @property
    def unfilled(self) -> int:
        """Held beyond live tokens."""
        return self.reservation + self.internal

    @property
    def held(self) -> int:
        """Held by sequences."""
        return self.token_states + self.unfilled

    @property
    def taken(self) -> int:
        """What the card would have more of without KV memory: a pool, or what buffers take."""
        return self.budget if self.pooled else self.held + self.rounding


def kv_layer(kv: KvState, wanted_bytes: int, needed_bytes: int, *, in_one_piece: bool) -> Layer:
    """Of a KV request for `wanted_bytes`, `needed_bytes` of which are tokens that come now.

    Blocks of a pool serve wherever they are: only buffers can fail for want of one piece. Rounding
    counts as free for those, since it is the allocator's own loss.
    """
    if in_one_piece and wanted_bytes <= kv.free + kv.cached + kv.rounding:
        return Layer.ALLOCATOR
    if kv.token_states + needed_bytes <= kv.budget:
        return Layer.KV_POLICY
    return Layer.CAPACITY


def card_layer(kv: KvState, needed_bytes: int, free_bytes: int) -> Layer:
    """Of an allocation beside KV memory, for whose sake `needed_bytes` are needed: itself and, of
    a step's activations, all that lives with it at the step's peak, or the step would fail a
    little later. `free_bytes` is what no tensor holds when it fails: the driver's and what the
    caching allocator still keeps after it released what it could."""
    if needed_bytes <= free_bytes:
        return Layer.ALLOCATOR
    idle = 0 if kv.pooled else kv.unfilled + kv.rounding
    if needed_bytes <= free_bytes + idle:
        return Layer.KV_POLICY
    return headroom_layer(kv, needed_bytes, free_bytes)


def headroom_layer(kv: KvState, wanted_bytes: int, left_bytes: int) -> Layer:
    """Of an allocation that a limit refused: what is left of the room that the division of the
    card gave it. The allocator was not asked, and what KV memory holds for is not the limit's."""
    if wanted_bytes <= left_bytes + kv.taken:
        return Layer.WORKSPACE
    return Layer.CAPACITY
