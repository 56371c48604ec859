"""A pool of fixed blocks taken at the start, and a block table a branch (PagedAttention).

Branches of a sequence share blocks, counted by reference. One that is to write into a block that
others hold too gets a copy of that block alone (copy-on-write; PagedAttention, section 4.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from backends.base import (
    NOT_REFUSED,
    Demand,
    Hold,
    KvLayout,
    NewTokens,
    NoPrefixCache,
    Refusal,
    StepAttention,
    Usage,
)
from backends.block_pool import BlockPool
from backends.checks import integer, room_for_one, watermark_share
from backends.kernels.base import KvCache, PagedBatch
from backends.kernels.paged_attention import attend, store_kv

SEGMENT_BYTES = 2 << 20
"""The caching allocator gives a large tensor whole multiples of this (2 MiB) at most."""


class Paged(NoPrefixCache):
    """`block_size` is in tokens; `watermark` is the share of blocks that admission leaves free."""

    prefill: ClassVar[Literal["whole", "chunked"]] = "chunked"
    activation_buckets: ClassVar[bool] = False
    holds_all_branches: ClassVar[bool] = False
    pooled = True
    moves = 0

    def __init__(
        self,
        *,
        name: str = "paged",
        block_size: int = 16,
        watermark: float = 0.0,
        alloc_conf: str = "",
    ) -> None:
        self.name = name
        self.alloc_conf = alloc_conf
        self.block_tokens = integer("backend.block_size", block_size, 1, 1 << 20, "tokens")
        self._watermark = watermark_share(watermark)
        self._held: dict[int, _Held] = {}
        self._entries = 0  # of all tables
        self.refusal = NOT_REFUSED

    def start(self, layout: KvLayout) -> None:
        self._layout = layout
        self._block_bytes = self.block_tokens * layout.token_bytes
        per_layer = layout.budget_bytes // layout.layers // SEGMENT_BYTES * SEGMENT_BYTES
        num_blocks = per_layer // (2 * layout.plane_bytes * self.block_tokens)
        room_for_one(layout.budget_bytes, num_blocks, self.block_tokens, layout.max_model_len)
        self._pool = self._make_pool(num_blocks)
        self._watermark_blocks = int(self._watermark * num_blocks)
        block_bytes = 2 * layout.plane_bytes * self.block_tokens
        self.kv = [  # a layer's K and V, as engines hold them
            torch.empty(num_blocks * block_bytes, dtype=torch.uint8, device=layout.device)
            for _ in range(layout.layers)
        ]

        heads = layout.heads
        if heads is not None:
            shape = num_blocks, 2, self.block_tokens, heads.kv_heads, heads.head_dim
            blocks = (each.view(heads.dtype).view(shape) for each in self.kv)
            self._caches = [KvCache(each[:, 0], each[:, 1]) for each in blocks]

    def _make_pool(self, num_blocks: int) -> BlockPool:
        return BlockPool(num_blocks)

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)

    def _blocks_in_all(self, tokens: int, demand: Demand) -> int:
        """Blocks of all branches for `tokens` tokens each, where they share what they must."""
        blocks = self._blocks(tokens)
        if demand.branches == 1 or tokens <= demand.prompt_tokens:
            return blocks
        shared = demand.prompt_tokens // self.block_tokens
        return shared + demand.branches * (blocks - shared)

    def fits(self, demand: Demand) -> bool:
        return self._blocks_in_all(demand.final_tokens, demand) <= self._pool.num_usable_blocks

    def reserve(self, sequence: int, tokens: int, room: int, demand: Demand) -> Hold | None:
        wanted = self._blocks_in_all(room, demand)
        if wanted > self._pool.num_free_blocks - self._spare_blocks:
            self._refuse(wanted)
            return None
        table = self._pool.take(self._blocks(tokens))
        return self._hold(sequence, table, tokens)

    def _refuse(self, blocks: int) -> None:
        """Notes that so many blocks were wanted and not there."""
        self.refusal = Refusal(blocks * self._block_bytes, in_one_piece=False)

    @property
    def _spare_blocks(self) -> int:
        """Blocks that admission leaves free for those who run."""
        return self._watermark_blocks if self._held else 0

    def _hold(self, sequence: int, table: list[int], tokens: int) -> Hold:
        assert sequence not in self._held, f"sequence {sequence} already holds memory"
        self._held[sequence] = _Held([table], tokens)
        self._entries += len(table)
        return Hold(len(table) * self.block_tokens)

    def extend(
        self, sequence: int, tokens: int, parents: Sequence[int] | None = None
    ) -> Hold | None:
        held = self._held[sequence]
        if parents is None and len(held.tables) == 1:
            return self._lengthen(sequence, held, tokens)
        tables, change = held.tables, None
        if parents is not None:
            change = _Change(tables, parents)
            self._pool.share(change.added)
            self._pool.give_back(change.dropped)
            tables = change.tables
        count = max(self._blocks(tokens), len(tables[0]))
        partial = held.tokens // self.block_tokens if held.tokens % self.block_tokens else None
        wanted = self._new_blocks(tables, count, partial)
        if wanted > self._pool.num_free_blocks:
            if change is not None:
                self._pool.share(change.dropped)
                self._pool.give_back(change.added)
            self._refuse(wanted)
            return None
        self._entries += len(tables) * count - held.entries
        copied = 0
        if partial is not None and len(tables) > 1:
            copied = self._copy_on_write(tables, partial)
        for table in tables:
            if len(table) < count:
                table += self._pool.take(count - len(table))
        self._held[sequence] = _Held(tables, max(tokens, held.tokens))
        slots = len(tables) * count * self.block_tokens
        return Hold(slots, copied * self._block_bytes, copies=min(copied, 1))

    def _lengthen(self, sequence: int, held: _Held, tokens: int) -> Hold | None:
        """Extends a sequence of one branch."""
        table = held.tables[0]
        more = self._blocks(tokens) - len(table)
        if more > self._pool.num_free_blocks:
            self._refuse(more)
            return None
        if more > 0:
            table += self._pool.take(more)
            self._entries += more
        self._held[sequence] = _Held(held.tables, max(tokens, held.tokens))
        return Hold(len(table) * self.block_tokens)

    def _new_blocks(self, tables: list[list[int]], count: int, partial: int | None) -> int:
        """Blocks to take for `count` in each table, the last written one being `partial`."""
        new = sum(count - len(table) for table in tables)
        if partial is not None and len(tables) > 1:
            new += len(tables) - len({table[partial] for table in tables})
        return new

    def _copy_on_write(self, tables: list[list[int]], partial: int) -> int:
        """Gives each table a last block of its own; how many were copied (in one launch)."""
        copied = 0
        for table in tables:
            if self._pool.is_shared(table[partial]):
                (copy,) = self._pool.take(1)
                self._copy(table[partial], copy, self.block_tokens)
                self._pool.give_back([table[partial]])
                table[partial] = copy
                copied += 1
        return copied

    def _copy(self, source: int, target: int, tokens: int) -> None:
        """The first `tokens` slots of a block, where anything is computed at all."""
        if self._layout.heads is not None:
            for plane in chain.from_iterable(cache[:2] for cache in self._caches):
                plane[target, :tokens] = plane[source, :tokens]

    def attention(self, rows: Sequence[NewTokens]) -> StepAttention:
        batch = PagedBatch.of(
            [self._held[row.sequence].tables[row.branch] for row in rows],
            [row.stop for row in rows],
            [row.stop - row.start for row in rows],
            self.block_tokens,
            self._layout.device,
        )
        return _PagedStep(self._caches, batch)

    def free(self, sequence: int, computed: int = 0) -> None:
        held = self._held.pop(sequence)
        self._entries -= held.entries
        for table in held.tables:
            self._pool.give_back(table)

    def block_table(self, sequence: int, branch: int = 0) -> list[int]:
        """Ids of the branch's blocks, in the order of its tokens."""
        return list(self._held[sequence].tables[branch])

    def usage(self) -> Usage:
        """`rounding` is the part of the budget that is no usable block: the pool's remainder and
        the null block."""
        usable_bytes = self._pool.num_usable_blocks * self._block_bytes
        shared = self._pool.num_shared_references
        return Usage(
            held=(self._entries - shared) * self._block_bytes,
            rounding=self._layout.budget_bytes - usable_bytes,
            cached=0,
            free=self._pool.num_free_blocks * self._block_bytes,
            shared=shared * self._block_bytes,
        )

    def check_integrity(self) -> None:
        tables = [table for held in self._held.values() for table in held.tables]
        assert self._entries == sum(map(len, tables))
        self._pool.check_integrity(tables)


class _PagedStep:
    """A StepAttention through block tables."""

    def __init__(self, caches: Sequence[KvCache], batch: PagedBatch) -> None:
        self._caches = caches
        self._batch = batch

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """All rows are written before any is read: one may read what another one writes."""
        cache = self._caches[layer]
        store_kv(k, v, cache, self._batch)
        return attend(q, cache, self._batch, q.shape[-1] ** -0.5)


class _Held(NamedTuple):
    """A block table a branch, and the tokens that each has room for."""

    tables: list[list[int]]
    tokens: int

    @property
    def entries(self) -> int:
        return sum(map(len, self.tables))


class _Change:
    """New tables made of old ones: blocks that are in more tables now, and in fewer."""

    def __init__(self, old: list[list[int]], parents: Sequence[int]) -> None:
        self.tables: list[list[int]] = []
        self.added: list[int] = []
        goes_on: set[int] = set()
        for parent in parents:
            if parent in goes_on:
                self.tables.append(list(old[parent]))
                self.added += old[parent]
            else:
                self.tables.append(old[parent])
                goes_on.add(parent)
        self.dropped = [
            block_id
            for branch, table in enumerate(old)
            if branch not in goes_on
            for block_id in table
        ]
