"""vLLM's block pool as a backend: it reads what vLLM's own scheduler decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Protocol

from backends.base import (
    NOT_REFUSED,
    BackendError,
    Demand,
    Hold,
    KvLayout,
    NewTokens,
    Refusal,
    StepAttention,
    Usage,
)
from backends.checks import integer, watermark_share

KERNEL_TOKENS = 16
"""vLLM's attention kernels for CUDA read blocks of whole multiples of so many tokens."""


class Blocks(Protocol):
    """What is asked of vLLM's scheduler (bench/vllm/observed.py), in blocks but for the first."""

    found_tokens: int

    @property
    def usable(self) -> int: ...
    @property
    def free(self) -> int: ...
    @property
    def cached(self) -> int: ...
    def held_by(self, sequence: int) -> int: ...


class VllmPool:
    """A pool of `block_size` tokens a block. vLLM has granted what `reserve` and `extend` ask for
    before they do, and has freed what `free` is told of."""

    prefill: ClassVar[Literal["whole", "chunked"]] = "chunked"
    activation_buckets: ClassVar[bool] = False
    caches_prefixes: ClassVar[bool] = False
    holds_all_branches: ClassVar[bool] = False
    pooled = True
    moves = 0
    evicted_blocks: int | None = None

    blocks: Blocks
    """Of the engine that was started."""

    def __init__(
        self,
        *,
        name: str,
        block_size: int = 16,
        watermark: float = 0.0,
        alloc_conf: str = "",
    ) -> None:
        self.name = name
        self.alloc_conf = alloc_conf
        self.watermark = watermark_share(watermark)
        self.block_tokens = integer("backend.block_size", block_size, 1, 1 << 20, "tokens")
        if self.block_tokens % KERNEL_TOKENS:
            raise BackendError(
                f"backend.block_size={block_size}: vLLM's attention takes blocks of a multiple of "
                f"{KERNEL_TOKENS} tokens: give 16, 32 or 64, say"
            )
        self.refusal = NOT_REFUSED
        self._held: dict[int, int] = {}
        self._entries = 0

    def start(self, layout: KvLayout) -> None:
        self._layout = layout
        self._block_bytes = self.block_tokens * layout.token_bytes

    def _in_blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)

    def fits(self, demand: Demand) -> bool:
        return self._in_blocks(demand.final_tokens) <= self.blocks.usable

    def lookup(self, tokens: int, demand: Demand) -> int:
        """vLLM looks when it admits: what it found last."""
        return self.blocks.found_tokens

    def reserve(self, sequence: int, tokens: int, room: int, demand: Demand) -> Hold | None:
        assert sequence not in self._held, f"sequence {sequence} already holds memory"
        slots = self._look_at(sequence)
        return Hold(slots, cached_tokens=self.blocks.found_tokens)

    def extend(
        self, sequence: int, tokens: int, parents: Sequence[int] | None = None
    ) -> Hold | None:
        assert parents is None, "vLLM's requests have one branch each"
        return Hold(self._look_at(sequence))

    def _look_at(self, sequence: int) -> int:
        """The slots that vLLM has given it."""
        blocks = self.blocks.held_by(sequence)
        self._entries += blocks - self._held.get(sequence, 0)
        self._held[sequence] = blocks
        return blocks * self.block_tokens

    def refuse(self, sequence: int, tokens: int, shared: int = 0) -> None:
        """vLLM had no room for `tokens` tokens in all, of which `shared` blocks that others hold
        were found. Those that were found and are free are wanted like new ones."""
        wanted = self._in_blocks(tokens) - self._held.get(sequence, shared)
        self.refusal = Refusal(wanted * self._block_bytes, in_one_piece=False)

    def free(self, sequence: int, computed: int = 0) -> None:
        self._entries -= self._held.pop(sequence)

    def attention(self, rows: Sequence[NewTokens]) -> StepAttention:
        raise AssertionError("vLLM attends by itself")

    def computed(self) -> None:
        """vLLM knows."""

    def usage(self) -> Usage:
        """`rounding` is the part of the budget that is no usable block: the pool's remainder and
        the null block."""
        blocks, block_bytes = self.blocks, self._block_bytes
        held, cached = blocks.usable - blocks.free, blocks.cached
        return Usage(
            held=held * block_bytes,
            rounding=self._layout.budget_bytes - blocks.usable * block_bytes,
            cached=cached * block_bytes,
            free=(blocks.free - cached) * block_bytes,
            shared=(self._entries - held) * block_bytes,
        )

    def check_integrity(self) -> None:
        for sequence, blocks in self._held.items():
            assert blocks == self.blocks.held_by(sequence), "vLLM holds another number of blocks"
        assert self._entries == sum(self._held.values())


class VllmPrefixPool(VllmPool):
    """With vLLM's automatic prefix caching."""

    caches_prefixes: ClassVar[bool] = True
