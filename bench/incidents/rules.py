"""Which layer a failed allocation comes from, by rules on what is cheap to know when it fails.

Note [Layers]
Three changes are thought of, each on top of the one before: free memory lies in one piece; memory
holds live tokens alone, in whole blocks of at most 16; KV memory is not there. The layer is the
first change that lets the allocation succeed: `allocator`, `kv_policy`, `workspace`; where none
does it is `capacity`. bench/incidents/counterfactual.py makes the changes and tries; here they are
sums of counters, and nothing is simulated.

Why blocks: a request that is refused often wants little, and a full paged pool always has more
than that in the tails of its last blocks. If the second change took these too, a pool full of
tokens would never be full. What it takes is what blocks of 16 tokens, PagedAttention's own, would
not hold either: reservations, larger units, second copies, a watermark.

A KV request is bounded by the KV budget, of which only KV memory takes. So the third change says
nothing of it: what live tokens leave no room for is capacity.
An allocation beside KV memory (activations, fragmentation sources) is bounded by the card. Where
KV memory is a pool, the second change gives back blocks to the pool, which help nobody else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

BLOCK_TOKENS = 16
"""The unit in which live tokens are said to need memory: PagedAttention's default block (Kwon et
al., section 7.2). A strategy's own blocks stand for it where they are smaller."""


class Layer(StrEnum):
    """What would have had to be otherwise."""

    CAPACITY = "capacity"
    """Live tokens really need the memory."""

    KV_POLICY = "kv_policy"
    """Reservations, units above 16 tokens, a watermark or a second copy hold it."""

    ALLOCATOR = "allocator"
    """Enough is free, but not in one piece, or cached in segments that cannot be released."""

    WORKSPACE = "workspace"
    """KV memory took the headroom that something beside it needed."""


NOT_KNOWN = "not_known"
"""In place of a layer: there was no allocator to ask, or the file is older."""


@dataclass(frozen=True, slots=True)
class KvState:
    """KV memory when an allocation failed, in bytes; the six terms add up to the budget.

    What is unfilled is split by the lengths that requests asked for: what they will fill if they
    run to their ends, and what they never will. `token_blocks` is what live tokens take in whole
    blocks of at most BLOCK_TOKENS, and `usable` what of the budget such blocks could take: a pool's
    own blocks, else all. `pooled` as in backends.base.Backend.
    """

    budget: int
    usable: int
    token_states: int
    token_blocks: int
    reservation: int
    internal: int
    rounding: int
    cached: int
    free: int
    pooled: bool

    @property
    def held(self) -> int:
        """Held by sequences."""
        return self.token_states + self.reservation + self.internal

    @property
    def taken(self) -> int:
        """What the card would have more of without KV memory: a pool, or what buffers take."""
        return self.budget if self.pooled else self.held + self.rounding


def kv_layer(kv: KvState, wanted_bytes: int, needed_bytes: int, *, in_one_piece: bool) -> Layer:
    """Of a KV request for `wanted_bytes`; the tokens that come now need `needed_bytes` in blocks.

    Blocks of a pool serve wherever they are: only buffers can fail for want of one piece. Rounding
    counts as free for those, since it is the allocator's own loss.
    """
    if in_one_piece and wanted_bytes <= kv.free + kv.cached + kv.rounding:
        return Layer.ALLOCATOR
    if kv.token_blocks + needed_bytes <= kv.usable:
        return Layer.KV_POLICY
    return Layer.CAPACITY


def card_layer(kv: KvState, needed_bytes: int, free_bytes: int) -> Layer:
    """Of an allocation beside KV memory, for whose sake `needed_bytes` are needed: itself and, of
    a step's activations, all that lives with it at the step's peak, or the step would fail a
    little later. `free_bytes` is what no tensor holds when it fails: the driver's and what the
    caching allocator still keeps after it released what it could."""
    if needed_bytes <= free_bytes:
        return Layer.ALLOCATOR
    idle = 0 if kv.pooled else kv.held - kv.token_blocks + kv.rounding
    if needed_bytes <= free_bytes + idle:
        return Layer.KV_POLICY
    return headroom_layer(kv, needed_bytes, free_bytes)


def headroom_layer(kv: KvState, wanted_bytes: int, left_bytes: int) -> Layer:
    """Of an allocation that a limit refused: what is left of the room that the division of the
    card gave it. The allocator was not asked, and what KV memory holds for is not the limit's."""
    if wanted_bytes <= left_bytes + kv.taken:
        return Layer.WORKSPACE
    return Layer.CAPACITY
