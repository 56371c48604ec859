"""One contiguous buffer a sequence, sized by a reservation policy.

`max` reserves max_model_len, as servers before paging did; `pow2` the prompt and the output
rounded up to a power of two; `oracle` the true length; `grow` what is there now, every extension
a new buffer and a copy, as Hugging Face's DynamicCache does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import torch

from backends.arenas.base import Arena
from backends.arenas.buddy import BuddyArena
from backends.arenas.caching import CachingArena
from backends.arenas.host import HostArena
from backends.base import (
    NOT_REFUSED,
    BackendError,
    Demand,
    Hold,
    KvLayout,
    NewTokens,
    NoPrefixCache,
    Refusal,
    StepAttention,
    Usage,
)
from backends.checks import one_of
from backends.kernels.buffers import BufferAttention, Row

Sizing = Callable[[int, Demand], int]
"""Slots to hold for a number of tokens and a demand, before the cap of max_model_len."""


def _maximum(tokens: int, demand: Demand) -> int:
    return 1 << 62  # capped by max_model_len


def _pow2(tokens: int, demand: Demand) -> int:
    return demand.prompt_tokens + (1 << (demand.output_tokens - 1).bit_length())


def _oracle(tokens: int, demand: Demand) -> int:
    return demand.final_tokens


def _grow(tokens: int, demand: Demand) -> int:
    return tokens


RESERVE: dict[str, Sizing] = {"max": _maximum, "pow2": _pow2, "oracle": _oracle, "grow": _grow}


class _Held(NamedTuple):
    """A sequence's memory: buffers for each of the branches that the demand says, `slots` in each,
    of which the first `tokens` are written in the first `branches` buffers."""

    buffers: list[Any]
    slots: int
    demand: Demand
    tokens: int
    branches: int = 1

    @property
    def all_slots(self) -> int:
        return len(self.buffers) * self.slots


class ContiguousBuffers(NoPrefixCache):
    """What every strategy of one buffer a sequence shares: only the sizing differs."""

    prefill: ClassVar[Literal["whole", "chunked"]] = "whole"
    activation_buckets: ClassVar[bool] = False
    holds_all_branches: ClassVar[bool] = True
    block_tokens: int | None = None

    def __init__(self, *, name: str, arena: str, layout: str, alloc_conf: str) -> None:
        self.name = name
        self.alloc_conf = alloc_conf
        self._arena_name = one_of("backend.arena", arena, ("torch", "buddy"))
        self.pooled = arena == "buddy"
        self.refusal = NOT_REFUSED
        self._per_layer = one_of("backend.layout", layout, ("layer", "sequence")) == "layer"
        self._held: dict[int, _Held] = {}
        self.moves = 0

    def _slots(self, tokens: int, demand: Demand) -> int:
        """Slots to hold for `tokens` tokens, before the cap of max_model_len."""
        raise NotImplementedError

    def start(self, layout: KvLayout) -> None:
        self._layout = layout
        self._arena = _make_arena(self._arena_name, layout)
        longest = Demand(prompt_tokens=layout.max_model_len, output_tokens=1)
        if not self.fits(longest):
            need = layout.max_model_len * layout.token_bytes
            raise BackendError(
                f"the KV budget of {layout.budget_bytes / 2**30:.2f} GiB cannot hold one sequence "
                f"of max_model_len={layout.max_model_len} ({need / 2**30:.2f} GiB) in backend "
                f"{self.name}: raise kv_budget or utilization, or lower max_model_len"
            )

    def _capped(self, tokens: int, demand: Demand) -> int:
        return min(max(self._slots(tokens, demand), tokens), self._layout.max_model_len)

    def _sizes(self, slots: int) -> tuple[int, ...]:
        if self._per_layer:
            return (slots * self._layout.plane_bytes,) * (2 * self._layout.layers)
        return (slots * self._layout.token_bytes,)

    def fits(self, demand: Demand) -> bool:
        sizes = self._sizes(self._capped(demand.final_tokens, demand))
        return self._arena.can_ever_allocate(sizes, demand.branches)

    def _allocate(self, slots: int, branches: int) -> list[Any] | None:
        """Buffers of so many slots for each branch, or None."""
        self.moves += 1
        taken: list[Any] = []
        for _ in range(branches):
            buffers = self._arena.allocate(self._sizes(slots))
            if buffers is None:
                self._release(taken)
                wanted = branches * sum(self._sizes(slots))
                self.refusal = Refusal(wanted, in_one_piece=True, error=self._arena.error)
                return None
            taken.append(buffers)
        return taken

    def _release(self, buffers: list[Any]) -> None:
        self.moves += 1
        for each in buffers:
            self._arena.release(each)

    def reserve(self, sequence: int, tokens: int, room: int, demand: Demand) -> Hold | None:
        """A buffer cannot grow where it is, so `room` is taken at once, for all branches."""
        assert sequence not in self._held, f"sequence {sequence} already holds memory"
        slots = self._capped(room, demand)
        buffers = self._allocate(slots, demand.branches)
        if buffers is None:
            return None
        held = self._held[sequence] = _Held(buffers, slots, demand, tokens)
        return Hold(held.all_slots)

    def extend(
        self, sequence: int, tokens: int, parents: Sequence[int] | None = None
    ) -> Hold | None:
        """Where tokens outgrow the buffers, each branch's is copied whole into a longer one. Else a
        branch that goes on from another's gets what is written, in a buffer that nobody needs."""
        held = self._held[sequence]
        branches = held.branches if parents is None else len(parents)
        if tokens > held.slots:
            slots = self._capped(tokens, held.demand)
            buffers = self._allocate(slots, len(held.buffers))
            if buffers is None:
                return None
            for branch, parent in enumerate(parents or range(branches)):
                self._copy(held.buffers[parent], buffers[branch], held.slots)
            self._release(held.buffers)
            copies, copied_slots = branches, held.slots
        else:
            slots, buffers = held.slots, held.buffers
            if parents is not None:
                buffers = self._fork(held, parents)
            copies, copied_slots = branches - len(set(parents or range(branches))), held.tokens
        self._held[sequence] = now = _Held(buffers, slots, held.demand, tokens, branches)
        return Hold(
            now.all_slots,
            copies * copied_slots * self._layout.token_bytes,
            copies * len(self._sizes(slots)),
        )

    def _fork(self, held: _Held, parents: Sequence[int]) -> list[Any]:
        """The buffers in the order of the new branches: a parent's own for its first child, for
        the others those that nothing goes on from."""
        spare = [each for branch, each in enumerate(held.buffers) if branch not in parents]
        buffers = []
        for branch, parent in enumerate(parents):
            buffer = held.buffers[parent]
            if parent in parents[:branch]:
                buffer = spare.pop()
                self._copy(held.buffers[parent], buffer, held.tokens)
            buffers.append(buffer)
        return buffers + spare

    def _copy(self, source: Any, target: Any, slots: int) -> None:
        """The first `slots` of a branch's buffers, where anything is computed at all."""
        if self._layout.heads is not None:
            for old, new in zip(self._planes(source), self._planes(target), strict=True):
                new[:slots] = old[:slots]

    def _planes(self, buffers: Any) -> list[torch.Tensor]:
        """K and V of each layer in turn, each [slots, kv_heads, head_dim]."""
        heads = self._layout.heads
        assert heads is not None, "nothing is computed"
        tensors = self._arena.tensors(buffers)
        if not self._per_layer:
            tensors = tensors[0].chunk(2 * self._layout.layers)
        return [
            tensor.view(heads.dtype).view(-1, heads.kv_heads, heads.head_dim) for tensor in tensors
        ]

    def attention(self, rows: Sequence[NewTokens]) -> StepAttention:
        return BufferAttention(
            [
                Row(self._planes(self._held[row.sequence].buffers[row.branch]), row.start, row.stop)
                for row in rows
            ]
        )

    def free(self, sequence: int, computed: int = 0) -> None:
        self._release(self._held.pop(sequence).buffers)

    def usage(self) -> Usage:
        arena = self._arena.usage()
        return Usage(
            held=sum(held.all_slots for held in self._held.values()) * self._layout.token_bytes,
            rounding=arena.allocated - arena.requested,
            cached=0,
            free=arena.free,
        )

    def check_integrity(self) -> None:
        self._arena.check_integrity()
        for sequence, held in self._held.items():
            assert 0 < held.slots <= self._layout.max_model_len, sequence
            assert 0 < held.branches <= len(held.buffers) == held.demand.branches, sequence
            assert held.tokens <= held.slots, sequence
        requested = sum(held.all_slots for held in self._held.values()) * self._layout.token_bytes
        assert requested == self._arena.usage().requested, requested


class Contiguous(ContiguousBuffers):
    """A buffer a sequence, by one of the policies above."""

    def __init__(
        self,
        *,
        name: str = "contiguous",
        reserve: str = "max",
        arena: str = "torch",
        layout: str = "layer",
        alloc_conf: str = "",
    ) -> None:
        super().__init__(name=name, arena=arena, layout=layout, alloc_conf=alloc_conf)
        self._sizing = RESERVE[one_of("backend.reserve", reserve, tuple(RESERVE))]

    def _slots(self, tokens: int, demand: Demand) -> int:
        return self._sizing(tokens, demand)


def _make_arena(name: str, layout: KvLayout) -> Arena[Any]:
    if name == "buddy":
        return BuddyArena(layout)
    return CachingArena(layout) if layout.device == "cuda" else HostArena(layout)
