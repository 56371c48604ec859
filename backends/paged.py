"""A pool of fixed blocks taken at the start, and a block table a sequence (PagedAttention)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch

from backends.base import BackendError, Demand, Hold, KvLayout, NoPrefixCache, Usage
from backends.block_pool import BlockPool
from backends.checks import integer

SEGMENT_BYTES = 2 << 20
"""The caching allocator gives a large tensor whole multiples of this (2 MiB) at most."""


class Paged(NoPrefixCache):
    """`block_size` is in tokens; `watermark` is the share of blocks that admission leaves free."""

    prefill: ClassVar[Literal["whole", "chunked"]] = "chunked"
    activation_buckets: ClassVar[bool] = False
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
        if isinstance(watermark, bool) or not isinstance(watermark, int | float):
            raise _bad_watermark(watermark)
        if not 0 <= watermark < 1:
            raise _bad_watermark(watermark)
        self._watermark = watermark
        self._tables: dict[int, list[int]] = {}

    def start(self, layout: KvLayout) -> None:
        self._layout = layout
        self._block_bytes = self.block_tokens * layout.token_bytes
        per_layer = layout.budget_bytes // layout.layers // SEGMENT_BYTES * SEGMENT_BYTES
        num_blocks = per_layer // (2 * layout.plane_bytes * self.block_tokens)
        self._require_room(num_blocks)
        self._pool = self._make_pool(num_blocks)
        self._watermark_blocks = int(self._watermark * num_blocks)
        block_bytes = 2 * layout.plane_bytes * self.block_tokens
        self.kv = [  # a layer's K and V, as engines hold them
            torch.empty(num_blocks * block_bytes, dtype=torch.uint8, device=layout.device)
            for _ in range(layout.layers)
        ]

    def _make_pool(self, num_blocks: int) -> BlockPool:
        return BlockPool(num_blocks)

    def _require_room(self, num_blocks: int) -> None:
        need = self._blocks(self._layout.max_model_len) + 1
        if num_blocks < need:
            raise BackendError(
                f"the KV budget of {self._layout.budget_bytes / 2**30:.2f} GiB holds {num_blocks} "
                f"blocks of {self.block_tokens} tokens and one sequence of max_model_len="
                f"{self._layout.max_model_len} needs {need} with the null block: raise kv_budget "
                "or utilization, or lower max_model_len"
            )

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)

    def fits(self, demand: Demand) -> bool:
        final = demand.prompt_tokens + demand.output_tokens - 1
        return self._blocks(final) <= self._pool.num_usable_blocks

    def reserve(self, sequence: int, tokens: int, room: int, demand: Demand) -> Hold | None:
        assert sequence not in self._tables, f"sequence {sequence} already holds memory"
        spare = self._watermark_blocks if self._tables else 0
        if self._blocks(room) > self._pool.num_free_blocks - spare:
            return None
        count = self._blocks(tokens)
        self._tables[sequence] = self._pool.take(count)
        return Hold(count * self.block_tokens)

    def extend(self, sequence: int, tokens: int) -> Hold | None:
        table = self._tables[sequence]
        count = self._blocks(tokens) - len(table)
        if count > self._pool.num_free_blocks:
            return None
        table += self._pool.take(count)
        return Hold(len(table) * self.block_tokens)

    def free(self, sequence: int, computed: int = 0) -> None:
        self._pool.give_back(self._tables.pop(sequence))

    def block_table(self, sequence: int) -> list[int]:
        """Ids of the sequence's blocks, in the order of its tokens."""
        return list(self._tables[sequence])

    def usage(self) -> Usage:
        """`rounding` is the part of the budget that is no usable block: the pool's remainder and
        the null block."""
        usable_bytes = self._pool.num_usable_blocks * self._block_bytes
        return Usage(
            held=sum(map(len, self._tables.values())) * self._block_bytes,
            rounding=self._layout.budget_bytes - usable_bytes,
            cached=0,
            free=self._pool.num_free_blocks * self._block_bytes,
        )

    def check_integrity(self) -> None:
        self._pool.check_integrity(list(self._tables.values()))


def _bad_watermark(value: object) -> BackendError:
    return BackendError(
        f"backend.watermark={value!r} is out of range: give the share of blocks that admission "
        "leaves free, from 0 up to 1, such as 0.01"
    )
