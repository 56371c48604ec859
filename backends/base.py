"""The contract between the engine and a way of laying out KV memory.

A backend holds K and V for sequences that the engine names by an integer. Memory is counted in
slots: room for one token's K and V in all layers. The engine asks for slots before it computes
tokens and never looks at how they are laid out.

A sequence has one branch until it is forked (parallel sampling, beam search), then several of one
length, numbered from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Protocol

import torch

DeviceName = Literal["cuda", "cpu"]


class BackendError(ValueError):
    """A backend setting that cannot be used; the message is one sentence for a user."""


class KvHeads(NamedTuple):
    """What K (or V) of one token in one layer is: `kv_heads` vectors of `head_dim` numbers."""

    kv_heads: int
    head_dim: int
    dtype: torch.dtype


class Others(NamedTuple):
    """What others than the backend took from PyTorch's allocator since it started and hold now, in
    bytes: as allocated and as requested. It is none of the budget's."""

    allocated: int = 0
    requested: int = 0


@dataclass(frozen=True, slots=True)
class KvLayout:
    """The KV memory that a run gives its backend.

    `token_bytes` is K and V of one token in all layers on this GPU; `budget_bytes` is the most
    that the backend may hold, rounding included; `device` is where torch allocates. `heads` is
    None where nothing is computed: then memory changes hands and nothing is written to it.
    `others` reads what others hold between steps, of the same allocator.
    """

    layers: int
    token_bytes: int
    max_model_len: int
    budget_bytes: int
    device: DeviceName
    heads: KvHeads | None = None
    others: Callable[[], Others] = Others

    @property
    def plane_bytes(self) -> int:
        """K (or V) of one token in one layer, in bytes."""
        return self.token_bytes // (2 * self.layers)


TokenIds = Callable[[int, int], bytes]
"""The ids of a sequence's tokens from `start` up to `stop`, as bytes that are equal if they are."""


class Demand(NamedTuple):
    """What a sequence will need. Only the oracle and pow2 policies may read `output_tokens`, and
    only prefix caching reads what the tokens are. `cache_salt` keeps caches of tenants or adapters
    apart. `branches` of `output_tokens` each will come out of the one prompt."""

    prompt_tokens: int
    output_tokens: int
    token_ids: TokenIds | None = None
    cache_salt: str = ""
    branches: int = 1

    @property
    def final_tokens(self) -> int:
        """Tokens whose K and V a branch ends with: the last one is never read again."""
        return self.prompt_tokens + self.output_tokens - 1

    def identified(self, tokens: int) -> int:
        """How many of the first `tokens` tokens have ids: branches part after the prompt."""
        return tokens if self.branches == 1 else min(tokens, self.prompt_tokens)


class Hold(NamedTuple):
    """A granted reserve or extend: slots now held by all branches, what they share counted for each
    of them, bytes copied to get there in how many copies, and tokens at the start that were found
    in the cache and need no computing."""

    slots: int
    copied_bytes: int = 0
    copies: int = 0
    cached_tokens: int = 0


class Refusal(NamedTuple):
    """A reserve or an extend that was refused: bytes wanted on top of all that is held, whether
    each buffer of them has to be in one piece (else any free memory would do), and what PyTorch
    said, where it was asked."""

    nbytes: int
    in_one_piece: bool
    error: str | None = None


NOT_REFUSED = Refusal(0, in_one_piece=False)


class NewTokens(NamedTuple):
    """What a step computes for a branch: tokens from `start` up to `stop`, which attend to all
    that come before them and to themselves. There is room for them."""

    sequence: int
    branch: int
    start: int
    stop: int


class StepAttention(Protocol):
    """Attention of one step's rows, in the order they were given, packed without padding."""

    def __call__(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        """Writes k and v (tokens, kv_heads, head_dim) to the backend's memory, then lets q
        (tokens, heads, head_dim) attend to what is there; shape of q."""
        ...


class Usage(NamedTuple):
    """KV memory now, each term read from its own source, in bytes.

    `held` belongs to sequences, filled or not, shared memory counted once; `rounding` is lost to
    the allocator's, arena's or pool's granularity; `cached` is kept for reuse and evictable;
    `free` can be given out. The four add up to the budget. `shared` is what sequences hold beyond
    `held` when each counts all of its own.
    """

    held: int
    rounding: int
    cached: int
    free: int
    shared: int = 0


class Backend(Protocol):
    """One allocation strategy.

    `prefill` and `activation_buckets` are the strategy's defaults for the engine; `alloc_conf` is
    what it asks of PyTorch's caching allocator, which only a fresh process can be given.
    `evicted_blocks` counts cached blocks that were given to others, None if it is not known. With
    `holds_all_branches` a sequence's memory is of all its branches from the start, else of those
    that there are. With `pooled` the strategy took all of its memory at the start, so that what
    sequences give back serves other sequences and nobody else. `refusal` is of the last reserve or
    extend that was refused.
    """

    name: str
    prefill: ClassVar[Literal["whole", "chunked"]]
    activation_buckets: ClassVar[bool]
    caches_prefixes: ClassVar[bool]
    holds_all_branches: ClassVar[bool]
    alloc_conf: str
    block_tokens: int | None
    evicted_blocks: int | None
    pooled: bool
    refusal: Refusal

    @property
    def moves(self) -> int:
        """How often device memory was allocated or freed, tried or done. It stands still while
        blocks of a pool change hands."""
        ...

    def start(self, layout: KvLayout) -> None:
        """Takes what the strategy holds from the start. Raises BackendError when the budget
        cannot hold one sequence of `max_model_len`, or one block."""
        ...

    def fits(self, demand: Demand) -> bool:
        """Whether an empty budget could hold the sequence, all of its branches, from its first to
        its last token."""
        ...

    def lookup(self, tokens: int, demand: Demand) -> int:
        """How many of the first `tokens` tokens a reserve would find in the cache, now."""
        ...

    def reserve(self, sequence: int, tokens: int, room: int, demand: Demand) -> Hold | None:
        """Slots for the first `tokens` tokens of a new sequence, if `room` tokens (at least as
        many) would fit it now; else None with nothing changed."""
        ...

    def extend(
        self, sequence: int, tokens: int, parents: Sequence[int] | None = None
    ) -> Hold | None:
        """Slots for `tokens` tokens in all in every branch, keeping what is written, or None with
        nothing changed for the sequence.

        With `parents` the branches are first replaced: new branch i goes on from what branch
        parents[i] holds. (0, 0) forks a sequence of one branch into two; (1, 1) lets beam search's
        branch 0 go and forks branch 1. Room is for as many branches as the demand said at most.
        """
        ...

    def free(self, sequence: int, computed: int = 0) -> None:
        """Gives back all that the sequence holds; the K and V of `computed` tokens were written
        and may be kept for reuse."""
        ...

    def attention(self, rows: Sequence[NewTokens]) -> StepAttention:
        """How the tokens of a step reach K and V. Only with `KvLayout.heads`."""
        ...

    def computed(self) -> None:
        """The step that memory was granted for is done: what it was for is written."""
        ...

    def usage(self) -> Usage:
        """KV memory now. The terms are read separately; their sum is not enforced here."""
        ...

    def check_integrity(self) -> None:
        """Raises AssertionError where the strategy's invariants do not hold."""
        ...


class NoPrefixCache:
    """What strategies say that find nothing again that others wrote."""

    caches_prefixes: ClassVar[bool] = False
    evicted_blocks = 0

    def lookup(self, tokens: int, demand: Demand) -> int:
        """Nothing is ever found."""
        return 0

    def computed(self) -> None:
        """Nobody asks what is written."""
