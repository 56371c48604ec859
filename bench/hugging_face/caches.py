"""Hugging Face's own caches as KV memory: one cache object a sequence, its tensors the caching
allocator's.

`dynamic` is DynamicCache: each layer in turn concatenates K, then V, with what is new and lets the
old tensor go. `static` is StaticCache: max_model_len from the first token on. Branches are rows of
the batch dimension, as `num_return_sequences` makes them, beams are followed by reorder_cache.
Nothing is computed: the virtual GPU's kernels do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
import transformers

from backends.arenas.caching import CachingArena
from backends.base import (
    NOT_REFUSED,
    BackendError,
    Demand,
    Hold,
    KvLayout,
    NewTokens,
    NoPrefixCache,
    Others,
    Refusal,
    StepAttention,
    Usage,
)
from backends.checks import one_of

ELEMENT_BYTES = 2
"""Of fp16 and bf16: a cache has the model's own type."""

COUNTER = Others(allocated=512, requested=8)
"""A length that a layer of a StaticCache keeps on the GPU, in the allocator's smallest block. It is
no KV: two caches that fill a budget to the byte fit it."""


@dataclass(slots=True)
class _Held:
    """A sequence's cache: `slots` in each of its `rows`, and tensors that count."""

    cache: Any
    rows: int
    slots: int = 0
    counters: int = 0

    @property
    def all_slots(self) -> int:
        return self.rows * self.slots


class HuggingFaceCaches(NoPrefixCache):
    """A DynamicCache or a StaticCache a sequence."""

    prefill: ClassVar[Literal["whole", "chunked"]] = "whole"
    activation_buckets: ClassVar[bool] = False
    holds_all_branches: ClassVar[bool] = True
    block_tokens: int | None = None
    pooled = False

    def __init__(self, *, name: str, cache: str, alloc_conf: str = "") -> None:
        self.name = name
        self.alloc_conf = alloc_conf
        self._static = one_of("engine.cache", cache, ("dynamic", "static")) == "static"
        self.refusal = NOT_REFUSED
        self.moves = 0
        self._held: dict[int, _Held] = {}

    def start(self, layout: KvLayout) -> None:
        if layout.device != "cuda" or layout.heads is not None:
            raise BackendError(f"backend {self.name} computes nothing: take device=virtual")
        self._layout = layout
        self._arena = CachingArena(replace(layout, others=self._others))  # only reads the allocator
        self._config = transformers.LlamaConfig(num_hidden_layers=layout.layers)
        if not self.fits(Demand(prompt_tokens=layout.max_model_len, output_tokens=1)):
            need = layout.max_model_len * layout.token_bytes
            raise BackendError(
                f"the KV budget of {layout.budget_bytes / 2**30:.2f} GiB cannot hold one sequence "
                f"of max_model_len={layout.max_model_len} ({need / 2**30:.2f} GiB) in backend "
                f"{self.name}: raise kv_budget or utilization, or lower max_model_len"
            )

    def _others(self) -> Others:
        counters, others = sum(held.counters for held in self._held.values()), self._layout.others()
        return Others(
            others.allocated + counters * COUNTER.allocated,
            others.requested + counters * COUNTER.requested,
        )

    def _slots(self, tokens: int) -> int:
        return self._layout.max_model_len if self._static else tokens

    def _bytes(self, slots: int) -> int:
        return slots * self._layout.token_bytes

    def fits(self, demand: Demand) -> bool:
        slots = demand.branches * self._slots(demand.final_tokens)
        return self._bytes(slots) <= self._layout.budget_bytes

    def reserve(self, sequence: int, tokens: int, room: int, demand: Demand) -> Hold | None:
        """The first forward pass gives a cache all of `room`."""
        assert sequence not in self._held, f"sequence {sequence} already holds memory"
        held = self._held[sequence] = _Held(self._empty_cache(), demand.branches)
        if not self._grow(held, room):
            del self._held[sequence]
            return None
        return Hold(held.all_slots)

    def _empty_cache(self) -> Any:
        if self._static:
            longest = self._layout.max_model_len
            return transformers.StaticCache(config=self._config, max_cache_len=longest)
        return transformers.DynamicCache(config=self._config)

    def extend(
        self, sequence: int, tokens: int, parents: Sequence[int] | None = None
    ) -> Hold | None:
        """Beams are reordered first, which takes all tensors anew; then the cache grows, if it has
        no room."""
        held = self._held[sequence]
        before, copies = held.all_slots, 0
        if parents is not None:
            if not self._reorder(held, parents):
                return None
            copies += 1
        if tokens > held.slots:
            if not self._grow(held, tokens):
                return None
            copies += 1
        return Hold(held.all_slots, copies * self._bytes(before), copies * 2 * self._layout.layers)

    def _grow(self, held: _Held, tokens: int) -> bool:
        """Has the library put K and V of new tokens there, up to `tokens`, layer after layer.

        Where a layer is refused, those before it are cropped to what they had. The library crops to
        a view: its few bytes more go when the sequence's next pass concatenates, or with it. The
        scheduler sees to one of both within the same step, so that no sample counts them.
        """
        slots, new = self._slots(tokens), tokens - held.slots
        more = self._bytes(held.rows * slots - held.all_slots)
        self.moves += 1
        error = None
        if self._arena.usage().allocated + more <= self._layout.budget_bytes:
            try:
                self._update(held, new)
                if self._arena.usage().allocated <= self._layout.budget_bytes:  # with rounding
                    held.slots = slots
                    return True
            except torch.OutOfMemoryError as refused:
                error = str(refused)
            self._crop(held)
        plane_bytes = held.all_slots * self._layout.plane_bytes  # the old one, beside the new
        self.refusal = Refusal(more + plane_bytes, in_one_piece=True, error=error)
        return False

    @torch.no_grad()
    def _update(self, held: _Held, tokens: int) -> None:
        width = self._layout.plane_bytes // ELEMENT_BYTES
        states = torch.empty(
            (held.rows, 1, tokens, width), dtype=torch.float16, device=self._layout.device
        )
        for layer in range(self._layout.layers):
            held.cache.update(states, states, layer)
        held.counters = sum(_counters(layer) for layer in held.cache.layers)

    def _crop(self, held: _Held) -> None:
        if not held.slots:
            return  # a new sequence's, which goes
        for layer in held.cache.layers:
            grown = layer.get_seq_length() - held.slots
            if grown:
                layer.crop(-grown)

    def _reorder(self, held: _Held, parents: Sequence[int]) -> bool:
        rows = [*parents, *[0] * (held.rows - len(parents))]
        self.moves += 1
        try:
            held.cache.reorder_cache(torch.tensor(rows, device=self._layout.device))
        except torch.OutOfMemoryError as refused:
            plane_bytes = held.all_slots * self._layout.plane_bytes
            self.refusal = Refusal(plane_bytes, in_one_piece=True, error=str(refused))
            return False
        return True

    def free(self, sequence: int, computed: int = 0) -> None:
        self.moves += 1
        del self._held[sequence]

    def attention(self, rows: Sequence[NewTokens]) -> StepAttention:
        raise AssertionError("nothing is computed")

    def usage(self) -> Usage:
        arena = self._arena.usage()
        return Usage(
            held=self._bytes(sum(held.all_slots for held in self._held.values())),
            rounding=arena.allocated - arena.requested,
            cached=0,
            free=arena.free,
        )

    def check_integrity(self) -> None:
        for sequence, held in self._held.items():
            planes = [plane for layer in held.cache.layers for plane in (layer.keys, layer.values)]
            assert len(planes) == 2 * self._layout.layers, sequence
            nbytes = sum(plane.numel() * plane.element_size() for plane in planes)
            assert nbytes == self._bytes(held.all_slots), sequence
        usage, arena = self.usage(), self._arena.usage()
        assert usage.held == arena.requested, usage
        assert 0 <= arena.requested <= arena.allocated <= self._layout.budget_bytes, arena


def _counters(layer: Any) -> int:
    """Tensors on the GPU that a layer of a cache has beside K and V."""
    tensors = (value for value in vars(layer).values() if isinstance(value, torch.Tensor))
    return sum(each.is_cuda for each in tensors) - 2
