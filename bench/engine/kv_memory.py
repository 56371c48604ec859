"""The engine's view of KV memory: a backend, and the books kept on what sequences hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from backends.base import Backend, Hold, Usage
from bench.engine.sequence import Sequence
from bench.incidents.rules import BLOCK_TOKENS, KvState
from bench.metrics.accounting import MemoryAccount
from bench.metrics.prefix_cache import PrefixCacheCounts


class Copies(NamedTuple):
    """Bytes copied, and in how many copies."""

    nbytes: int
    number: int


class Blocks(NamedTuple):
    """Blocks of a pool: held by sequences, free, and free but kept for reuse."""

    used: int
    free: int
    cached: int


class KvMemory:
    """Passes requests on to the backend and tells the account what changed.

    `frees` counts what was given back: a refused allocation is worth another try only after it
    moved, since each try makes the caching allocator release its cached segments. `on_free` hears
    of every sequence that lost its memory.
    """

    on_free: Callable[[Sequence], None] | None = None

    def __init__(self, backend: Backend, account: MemoryAccount) -> None:
        self.backend = backend
        self.account = account
        self.frees = 0
        self.prefix_cache = PrefixCacheCounts()
        self._copied = Copies(0, 0)
        self._usage: Usage | None = None

    def lookup(self, sequence: Sequence) -> int:
        """How many of the sequence's known tokens, but the last, are in the cache."""
        if not self.backend.caches_prefixes:
            return 0
        return self.backend.lookup(sequence.known, sequence.demand)

    def reserve(self, sequence: Sequence, tokens: int, room: int) -> bool:
        """Slots for a new sequence's first `tokens` tokens, if `room` would fit; else False."""
        hold = self.backend.reserve(sequence.id, tokens, room, sequence.demand)
        self._usage = None  # even a refusal can move memory about
        if hold is None:
            return False
        self._granted(sequence, hold)
        sequence.found(hold.cached_tokens)
        if not sequence.preemptions:
            sequence.cached_tokens = hold.cached_tokens
        resumed = sequence.preemptions > 0
        blocks = hold.cached_tokens // (self.backend.block_tokens or 1)
        self.prefix_cache.admitted(sequence.known, hold.cached_tokens, blocks, resumed)
        self.account.opened(sequence.id, hold.slots, self._held_branches(sequence))
        self.account.filled(sequence.id, sequence.tokens)
        return True

    def extend(self, sequence: Sequence, tokens: int) -> bool:
        """Room for `tokens` tokens in all in every branch; False when refused."""
        lineage = sequence.lineage
        parents = None if lineage is None else lineage.parents
        hold = self.backend.extend(sequence.id, tokens, parents)
        self._usage = None
        if hold is None:
            return False
        self._granted(sequence, hold)
        if lineage is not None and parents is not None:
            self.frees += len(set(parents)) < sequence.branches  # a beam was dropped
            sequence.branches = len(parents)
            lineage.parents = None
        self.account.resized(sequence.id, hold.slots, self._held_branches(sequence))
        return True

    def _held_branches(self, sequence: Sequence) -> int:
        """How many branches the sequence's slots are of."""
        if self.backend.holds_all_branches:
            return sequence.width
        return sequence.branches

    def _granted(self, sequence: Sequence, hold: Hold) -> None:
        sequence.slots = hold.slots
        if hold.copies:
            self._copied = Copies(
                self._copied.nbytes + hold.copied_bytes, self._copied.number + hold.copies
            )

    def free(self, sequence: Sequence) -> None:
        """Gives back what the sequence holds."""
        self.backend.free(sequence.id, sequence.computed)
        self.account.closed(sequence.id, sequence.computed)
        sequence.slots = 0
        self.frees += 1
        self._usage = None
        if self.on_free is not None:
            self.on_free(sequence)

    def usage(self) -> Usage:
        """The backend's own reading, taken again after every change."""
        if self._usage is None:
            self._usage = self.backend.usage()
        return self._usage

    def state(self, holders: Iterable[Sequence]) -> KvState:
        """KV memory now, in its six terms; what sequences have unfilled by the lengths that they
        asked for. Tokens that the current step computes are live during it."""
        usage, token_bytes = self.usage(), self.account.token_bytes
        budget = self.account.budget_bytes
        tokens = in_blocks = will_fill = slots = 0
        for sequence in holders:
            fillable = sequence.demand.final_tokens * self._held_branches(sequence)
            live = (sequence.computed + sequence.chunk) * sequence.branches
            tokens += live
            in_blocks += self._in_blocks(sequence)
            will_fill += max(0, min(sequence.slots, fillable) - live)
            slots += sequence.slots
        return KvState(
            budget=budget,
            usable=budget if self.backend.block_tokens is None else budget - usage.rounding,
            token_states=tokens * token_bytes - usage.shared,
            token_blocks=in_blocks * token_bytes - usage.shared,
            reservation=will_fill * token_bytes,
            internal=(slots - tokens - will_fill) * token_bytes,
            rounding=usage.rounding,
            cached=usage.cached,
            free=usage.free,
            pooled=self.backend.pooled,
        )

    def needed_bytes(self, sequence: Sequence, tokens: int, branches: int) -> int:
        """What a refused request for `tokens` tokens in each branch needs in whole blocks, beyond
        what the sequence holds: what was asked for where that was in such blocks."""
        refused = self.backend.refusal.nbytes
        if self.backend.block_tokens == self._block:
            return refused
        whole = self._whole(tokens)
        shared = 0  # what branches that part now have in common: their prompt
        if sequence.branches == 1 and branches > 1:
            shared = sequence.demand.prompt_tokens // self._block * self._block
        slots = shared + branches * (whole - shared) - self._in_blocks(sequence)
        return max(0, min(slots * self.account.token_bytes, refused))

    def _in_blocks(self, sequence: Sequence) -> int:
        """Slots in whole blocks that its live tokens take, no more than it holds."""
        live = self._whole(sequence.computed + sequence.chunk)
        return min(sequence.slots, live * sequence.branches)

    def _whole(self, tokens: int) -> int:
        return -(-tokens // self._block) * self._block

    @property
    def _block(self) -> int:
        """Tokens of the blocks of Note [Layers]."""
        return min(self.backend.block_tokens or BLOCK_TOKENS, BLOCK_TOKENS)

    def blocks(self) -> Blocks | None:
        """The pool's blocks, where there is one."""
        if self.backend.block_tokens is None:
            return None
        usage, block_bytes = self.usage(), self.backend.block_tokens * self.account.token_bytes
        return Blocks(*(n // block_bytes for n in (usage.held, usage.free, usage.cached)))

    def take_copies(self) -> Copies:
        """What was copied between buffers since the last call."""
        copied, self._copied = self._copied, Copies(0, 0)
        return copied
