"""An incident log that keeps, beside each incident, the moment that the ground truth goes by."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from backends.arenas import ranges
from backends.base import Backend, KvLayout
from backends.contiguous import ContiguousBuffers
from backends.paged import Paged
from backends.vmm import Vmm
from bench.engine.activations import ActivationTrace
from bench.engine.incidents import IncidentLog
from bench.engine.sequence import Sequence
from bench.incidents.counterfactual import Moment
from bench.metrics.allocator import AllocatorProbe

Witnessed = tuple[dict[str, Any], Moment]


class Witness(IncidentLog):
    """Reads blocks and sequences where the log reads counters. Only for requests of one branch."""

    def __init__(
        self,
        make: Callable[[], Backend],
        layout: KvLayout,
        activations: ActivationTrace | None,
    ) -> None:
        self.probe = AllocatorProbe()
        super().__init__(self.probe.now, self.probe.at_failure)
        self.seen: list[Witnessed] = []
        self.activations = activations
        self._make, self._layout = make, layout
        self._wanted: Sequence | None = None
        torch._C._cuda_attach_out_of_memory_observer(self._note)  # type: ignore[attr-defined]

    def _note(self, *told: int) -> None:
        """The allocator refuses memory: all that it has and could get."""
        free, _ = torch.cuda.mem_get_info()
        self._has_bytes = free + torch.cuda.memory_reserved()

    def reserve_refused(self, sequence: Sequence, tokens: int, now: float) -> None:
        self._wanted = sequence
        super().reserve_refused(sequence, tokens, now)

    def extend_refused(
        self, sequence: Sequence, tokens: int, now: float, preempted: int | None
    ) -> None:
        self._wanted = sequence
        super().extend_refused(sequence, tokens, now, preempted)

    def _begin(self, kind: str, layer: Any, wanted: dict[str, Any], *rest: Any) -> dict[str, Any]:
        incident = super()._begin(kind, layer, wanted, *rest)
        is_kv = "wanted_tokens" in wanted
        moment = self._kv(kind, incident) if is_kv else self._card(incident)
        self.seen.append((incident, moment))
        return incident

    @property
    def _live(self) -> int:
        """Bytes of live tokens, each sequence's in blocks, or in the fewer slots that it holds."""
        live = ((each.computed + each.chunk, each.slots) for each in self._holders.running)
        return sum(min(self._in_blocks(tokens), slots) for tokens, slots in live) * self._token

    @property
    def _token(self) -> int:
        return self._layout.token_bytes

    def _in_blocks(self, tokens: int) -> int:
        """Slots in whole blocks of 16 tokens, or the pool's own where those are smaller."""
        block = min(16, self._backend.block_tokens or 16)
        return math.ceil(tokens / block) * block

    def _kv(self, kind: str, incident: dict[str, Any]) -> Moment:
        backend, sequence, tokens = self._backend, self._wanted, incident["wanted_tokens"]
        assert sequence is not None
        wanted, limit = 0, self._layout.budget_bytes
        if isinstance(backend, ContiguousBuffers):
            wanted = backend._capped(tokens, sequence.demand) * self._token
        if isinstance(backend, Paged):
            limit = backend._pool.num_usable_blocks * backend.block_tokens * self._token
        slots = self._in_blocks(tokens) - min(self._in_blocks(sequence.computed), sequence.slots)
        pool = None if not isinstance(backend, Paged | Vmm) else self._again(kind, sequence, tokens)
        return Moment(
            limit=limit,
            others=(),
            kv=_kv_sizes(backend),
            live=self._live,
            wanted=wanted,
            needed=min(slots * self._token, wanted or limit),
            is_kv=True,
            pooled=False,
            pool=pool,
        )

    def _again(self, kind: str, sequence: Sequence, tokens: int) -> Callable[[], bool]:
        """Whether a fresh pool serves the sequence, once the others hold what they held."""
        holders = [(held.id, held.slots, held.demand) for held in self._holders.running]
        demand = sequence.demand

        def serves() -> bool:
            backend: Any = self._make()
            backend.start(self._layout)
            watermark, backend._watermark_blocks = getattr(backend, "_watermark_blocks", 0), 0
            for each, slots, its_demand in holders:
                assert backend.reserve(each, slots, slots, its_demand) is not None
            backend._watermark_blocks = watermark
            if kind == "extend_refused":
                return backend.extend(sequence.id, tokens) is not None
            return backend.reserve(sequence.id, tokens, tokens, demand) is not None

        return serves

    def _card(self, incident: dict[str, Any]) -> Moment:
        """The step's activations are gone again, and all of them are tried."""
        kv, blocks = set(_addresses(self._backend)), _live_blocks()
        running = self._holders.running
        tokens = sum(sequence.chunk for sequence in running)
        rows = sum(each.computed + each.chunk == each.known for each in running)
        assert self.activations is not None
        return Moment(
            limit=self._has_bytes + sum(_pages(self._backend)),
            others=[size for address, size in blocks.items() if address not in kv],
            kv=[blocks[address] for address in kv] + _pages(self._backend),
            live=self._live,
            wanted=incident["wanted_bytes"],
            needed=self.activations.peak_bytes(tokens, rows),
            is_kv=False,
            pooled=self._backend.pooled,
        )

    @property
    def _backend(self) -> Any:
        backend = self._holders.memory.backend
        return getattr(backend, "backend", backend)


def _live_blocks() -> dict[int, int]:
    """What every live block was asked for with, by its address."""
    return {
        block["address"]: block["requested_size"]
        for segment in torch.cuda.memory_snapshot()
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    }


def _addresses(backend: Any) -> list[int]:
    """Of the blocks that KV memory is in. A vmm's are none of the allocator's."""
    if isinstance(backend, Vmm):
        return []
    if isinstance(backend, Paged):
        return [each.data_ptr() for each in backend.kv]
    if backend.pooled:
        return [backend._arena.pool.data_ptr()]
    return [buffer.data_ptr() for group in _groups(backend) for buffer in group]


def _pages(backend: Any) -> list[int]:
    """KV memory that the allocator never sees."""
    if not isinstance(backend, Vmm):
        return []
    return [backend._ranges.num_rows * backend._planes * ranges.PAGE_BYTES]


def _groups(backend: Any) -> list[Any]:
    return [group for held in backend._held.values() for group in held.buffers]


def _kv_sizes(backend: Any) -> list[int]:
    """What sequences' buffers were asked for with; of pools nothing."""
    if not isinstance(backend, ContiguousBuffers):
        return []
    if backend.pooled:
        return [sum(block.sizes) for block in _groups(backend)]
    blocks = _live_blocks()
    return [blocks[address] for address in _addresses(backend)]
