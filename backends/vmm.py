"""Contiguous virtual addresses with physical pages mapped on demand (vAttention, Prabhu et al.,
ASPLOS 2025).

A branch has a range of addresses for max_model_len tokens, and pages of 2 MiB only where it has
tokens: kernels read it as one buffer, it grows without a copy, and what it wastes is its last
pages. `layout: layer` gives every layer a K and a V range, as engines hold them, each of which
rounds up to pages; `layout: sequence` keeps all layers of a token together in one range (as the
paper's tensor slicing, which keeps K and V apart). With `reclaim: reuse` an ended sequence's range
stays mapped for the next one (deferred reclamation), with `unmap` its pages are unmapped at once.

Contiguous ranges share nothing: a fork copies what its parent has written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from backends.arenas.host_pages import HostPages
from backends.arenas.ranges import PAGE_BYTES, Pages, Range, Ranges
from backends.base import (
    NOT_REFUSED,
    BackendError,
    Demand,
    DeviceName,
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

NOTHING = Hold(0)


@dataclass(slots=True)
class _Held:
    """A sequence's range a branch, what each has room for, and the `tokens` that are asked for."""

    ranges: list[Range]
    tokens: int = 0
    rows: int = 0
    capacity: int = 0
    hold: Hold = NOTHING


class Vmm(NoPrefixCache):
    """A range of addresses a branch; pages come as tokens do."""

    prefill: ClassVar[Literal["whole", "chunked"]] = "chunked"
    activation_buckets: ClassVar[bool] = False
    holds_all_branches: ClassVar[bool] = False
    block_tokens: int | None = None
    pooled = True
    moves = 0
    """Device memory is taken at the start; mapping only lets its pages change hands, and PyTorch's
    allocator never sees them."""

    def __init__(
        self,
        *,
        name: str = "vmm",
        layout: str = "layer",
        reclaim: str = "reuse",
        alloc_conf: str = "",
    ) -> None:
        self.name = name
        self.alloc_conf = alloc_conf
        self._per_layer = one_of("backend.layout", layout, ("layer", "sequence")) == "layer"
        self._reuses = one_of("backend.reclaim", reclaim, ("reuse", "unmap")) == "reuse"
        self._held: dict[int, _Held] = {}
        self._slots = 0  # of all sequences
        self.refusal = NOT_REFUSED

    def start(self, layout: KvLayout) -> None:
        self._layout = layout
        self._planes = 2 * layout.layers if self._per_layer else 1
        self._plane_token_bytes = layout.plane_bytes if self._per_layer else layout.token_bytes
        num_rows = layout.budget_bytes // (self._planes * PAGE_BYTES)
        most_rows = self._rows(layout.max_model_len)
        self._require_room(num_rows, most_rows)
        self._ranges = Ranges(
            _make_pages(num_rows * self._planes, layout.device),
            planes=self._planes,
            num_rows=num_rows,
            most_rows=most_rows,
            keeps_mapped=self._reuses,
        )

    def _require_room(self, num_rows: int, need: int) -> None:
        if num_rows < need:
            raise BackendError(
                f"the KV budget of {self._layout.budget_bytes / 2**30:.2f} GiB holds "
                f"{num_rows * self._planes} pages of 2 MiB and one sequence of max_model_len="
                f"{self._layout.max_model_len} needs {need * self._planes} in backend {self.name}: "
                "raise kv_budget or utilization, or lower max_model_len"
            )

    def _rows(self, tokens: int) -> int:
        return -(-tokens * self._plane_token_bytes // PAGE_BYTES)

    def fits(self, demand: Demand) -> bool:
        rows = demand.branches * self._rows(demand.final_tokens)
        return demand.final_tokens <= self._layout.max_model_len and rows <= self._ranges.num_rows

    def reserve(self, sequence: int, tokens: int, room: int, demand: Demand) -> Hold | None:
        """A range and its first pages. The other branches' come with the forks, but a sequence
        whose branches would not all find room now is not let in."""
        assert sequence not in self._held, f"sequence {sequence} already holds memory"
        wanted = demand.branches * self._rows(room)
        first = None
        if wanted <= self._ranges.free_rows:
            first = self._ranges.take(self._rows(room))
        if first is None:
            self._refuse(wanted)
            return None
        held = self._held[sequence] = _Held([first])
        return self._grow(held, tokens)

    def extend(
        self, sequence: int, tokens: int, parents: Sequence[int] | None = None
    ) -> Hold | None:
        held = self._held[sequence]
        if parents is not None:
            return self._fork(held, tokens, parents)
        if tokens <= held.capacity:  # nearly always: no page is needed
            held.tokens = max(held.tokens, tokens)
            return held.hold
        if not self._has_room(held, tokens, len(held.ranges)):
            return None
        return self._grow(held, tokens)

    def _has_room(self, held: _Held, tokens: int, branches: int) -> bool:
        rows = branches * max(self._rows(tokens), held.rows)
        wanted = rows - len(held.ranges) * held.rows
        if wanted > self._ranges.free_rows:
            self._refuse(wanted)
        return wanted <= self._ranges.free_rows

    def _refuse(self, rows: int) -> None:
        """Notes that so many rows were wanted and not there."""
        nbytes = rows * self._planes * PAGE_BYTES
        self.refusal = Refusal(nbytes, in_one_piece=False)

    def _grow(self, held: _Held, tokens: int) -> Hold:
        """Pages for so many tokens in every branch, which must be free."""
        held.tokens = max(held.tokens, tokens)
        held.rows = max(held.rows, self._rows(tokens))
        held.capacity = held.rows * PAGE_BYTES // self._plane_token_bytes
        for each in held.ranges:
            self._ranges.grow(each, held.rows)
        self._slots -= held.hold.slots
        held.hold = Hold(len(held.ranges) * held.capacity)
        self._slots += held.hold.slots
        return held.hold

    def _fork(self, held: _Held, tokens: int, parents: Sequence[int]) -> Hold | None:
        """A parent's first child goes on in its range, each other one gets a full copy, in a range
        that lost its branch while there are any."""
        if not self._has_room(held, tokens, len(parents)):
            return None
        lost = [each for branch, each in enumerate(held.ranges) if branch not in parents]
        copies = len(parents) - len(set(parents))
        rows = max(self._rows(tokens), held.rows)
        more = self._take(copies - len(lost), rows)
        if more is None:
            self._refuse((copies - len(lost)) * rows)
            return None
        written_bytes = held.tokens * self._plane_token_bytes
        places = lost + more
        old, held.ranges, sources = held.ranges, [], []
        for number, parent in enumerate(parents):
            is_first = parent not in parents[:number]
            held.ranges.append(old[parent] if is_first else places.pop())
            sources.append(old[parent])
        for surplus in places:
            self._ranges.release(surplus)
        hold = self._grow(held, tokens)
        for source, target in zip(sources, held.ranges, strict=True):
            if source is not target:
                self._ranges.copy(source, target, written_bytes)
        return hold._replace(
            copied_bytes=copies * written_bytes * self._planes, copies=copies * self._planes
        )

    def _take(self, count: int, rows: int) -> list[Range] | None:
        """So many more ranges, or None."""
        taken: list[Range] = []
        while len(taken) < count:
            another = self._ranges.take(rows)
            if another is None:
                for each in taken:
                    self._ranges.release(each)
                return None
            taken.append(another)
        return taken

    def free(self, sequence: int, computed: int = 0) -> None:
        held = self._held.pop(sequence)
        self._slots -= held.hold.slots
        for each in held.ranges:
            self._ranges.release(each)

    def planes(self, sequence: int, branch: int = 0) -> list[torch.Tensor]:
        """The branch's slots, as uint8 tensors of one length: K and V of the first layer, of the
        second and so on, or with `layout: sequence` one for all, token by token. They are good
        until the sequence is freed or its branches are replaced; an extend goes on behind them."""
        held = self._held[sequence]
        nbytes = held.capacity * self._plane_token_bytes
        return self._ranges.planes(held.ranges[branch], nbytes)

    def attention(self, rows: Sequence[NewTokens]) -> StepAttention:
        return BufferAttention([Row(self._typed(row), row.start, row.stop) for row in rows])

    def _typed(self, row: NewTokens) -> list[torch.Tensor]:
        """K and V of each layer in turn, each [slots, kv_heads, head_dim]; slots that pages have
        beyond whole ones are left out."""
        heads, planes = self._layout.heads, self.planes(row.sequence, row.branch)
        assert heads is not None, "nothing is computed"
        if self._per_layer:
            return [
                plane.view(heads.dtype).view(-1, heads.kv_heads, heads.head_dim) for plane in planes
            ]
        (tokens,) = planes
        shape = (-1, 2 * self._layout.layers, heads.kv_heads, heads.head_dim)
        return list(tokens.view(heads.dtype).view(shape).unbind(1))

    def usage(self) -> Usage:
        """`free` is unmapped pages and those mapped that no sequence needs; `rounding` what pages
        have beyond whole slots, and what of the budget is no page in every plane."""
        row_bytes = self._planes * PAGE_BYTES
        held = self._slots * self._layout.token_bytes
        tail = self._layout.budget_bytes - self._ranges.num_rows * row_bytes
        return Usage(
            held=held,
            rounding=self._ranges.held_rows * row_bytes - held + tail,
            cached=0,
            free=self._ranges.free_rows * row_bytes,
        )

    def check_integrity(self) -> None:
        self._ranges.check_integrity(each for held in self._held.values() for each in held.ranges)
        assert self._slots == sum(held.hold.slots for held in self._held.values())
        for sequence, held in self._held.items():
            assert held.tokens <= held.capacity, sequence
            assert held.hold.slots == len(held.ranges) * held.capacity, sequence
            assert all(each.held == held.rows for each in held.ranges), sequence


def _make_pages(count: int, device: DeviceName) -> Pages:
    if device == "cpu":
        return HostPages(count)
    from backends.arenas.pages import DevicePages  # CUDA's bindings exist on Linux only

    return DevicePages(count)
