"""LoRA adapters, loaded when a sequence needs one and unloaded when others need its slot."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np

from bench.costs import StepWork
from bench.engine.sequence import Sequence as EngineSequence
from bench.model.shape import ACTIVATION_BYTES
from bench.sources.base import Quiet, Served
from bench.sources.room import Room
from bench.sources.settings import choice_of, ranks_of
from workloads.settings import count, number
from workloads.streams import stream


class Lora(Quiet):
    """Adapters as PEFT holds them: for each of q, k, v, o, gate, up and down of each layer an A
    (rank x inputs) and a B (outputs x rank) of 16 bits, a tensor each (Hu et al., LoRA, 2021).

    Each request uses one of `adapters`, the n-th with a probability in proportion to
    n^-`exponent`; the n-th has the (n mod their number)-th of `ranks`. At most `slots` are loaded;
    the least recently used one that no sequence uses makes place. A server sets aside `slots` of
    the largest. A request that finds neither slot nor memory runs on the base model.
    """

    def __init__(
        self,
        *,
        adapters: int = 64,
        slots: int = 32,
        ranks: Sequence[int] = (8, 16, 32),
        exponent: float = 1.0,
        modules: str = "all",
    ) -> None:
        fix = "give how many there are, such as 64"
        self._adapters = count("sources.lora.adapters", adapters, 1, 100_000, "adapters", fix)
        fix = "give how many may be loaded at a time, such as 32"
        self._slots = count("sources.lora.slots", slots, 1, 10_000, "adapters", fix)
        self._ranks = ranks_of("sources.lora.ranks", ranks)
        fix = "0 makes all alike, 1 is Zipf's law"
        exponent = number("sources.lora.exponent", exponent, 0, 10, "(a power)", fix)
        self._all = choice_of("sources.lora.modules", modules, ("all", "attention")) == "all"
        weights = np.arange(1, self._adapters + 1, dtype=float) ** -exponent
        self._cumulative = np.cumsum(weights / weights.sum())
        self._loaded: OrderedDict[int, list[int]] = OrderedDict()  # the last used one last
        self._users: Counter[int] = Counter()
        self._used: dict[int, int | None] = {}  # by sequence; None: the base model
        self._counts = Counter(loads=0, unloads=0, on_base_model=0)

    def planned_bytes(self, served: Served) -> int:
        loaded = min(self._slots, self._adapters)
        return loaded * sum(self._sizes(served, max(self._ranks)))

    def _sizes(self, served: Served, rank: int) -> list[int]:
        """Bytes of an adapter's matrices on one GPU."""
        adapted = _matrices(served, with_mlp=self._all)
        layer = [rank * n * ACTIVATION_BYTES for matrix in adapted for n in matrix]
        return layer * served.model.layers

    def start(self, served: Served, room: Room) -> None:
        self._served, self._room = served, room

    def step_begins(self, sequences: Sequence[EngineSequence], work: StepWork) -> None:
        for sequence in sequences:
            if sequence.id not in self._used:
                self._used[sequence.id] = self._acquire(self._adapter(sequence.id))

    def _adapter(self, request: int) -> int:
        """The adapter that a request uses, from 0."""
        drawn = stream(self._served.seed, f"sources/lora/{request}").random()
        return min(int(np.searchsorted(self._cumulative, drawn)), self._adapters - 1)

    def _acquire(self, adapter: int) -> int | None:
        """The adapter, now loaded and used once more; None where it cannot be."""
        if adapter not in self._loaded and not self._load(adapter):
            self._counts["on_base_model"] += 1
            return None
        self._loaded.move_to_end(adapter)
        self._users[adapter] += 1
        return adapter

    def _load(self, adapter: int) -> bool:
        while len(self._loaded) >= self._slots:
            if not self._unload_one():
                return False
        sizes = self._sizes(self._served, self._ranks[adapter % len(self._ranks)])
        while (matrices := self._room.take(sizes)) is None:
            if not self._unload_one():
                return False
        self._loaded[adapter] = matrices
        self._counts["loads"] += 1
        return True

    def _unload_one(self) -> bool:
        """Unloads the adapter that has been unused longest; False if all are used."""
        idle = next((each for each in self._loaded if not self._users[each]), None)
        if idle is None:
            return False
        self._room.give(self._loaded.pop(idle))
        self._counts["unloads"] += 1
        return True

    def left(self, sequence: int) -> None:
        adapter = self._used.pop(sequence, None)
        if adapter is not None:
            self._users[adapter] -= 1

    def counts(self) -> Mapping[str, int]:
        return dict(self._counts)


def _matrices(served: Served, *, with_mlp: bool) -> list[tuple[int, int]]:
    """Inputs and outputs of a layer's matrices on one GPU, unfused as a checkpoint has them: each
    has an adapter of its own, whose A is not shared as the matrices' input is."""
    model, gpus = served.model, served.tensor_parallel
    qkv, o, up, down = model.linear_layers(gpus)
    kv = model.kv_heads * model.head_dim // gpus
    attention = [qkv.outputs - 2 * kv, kv, kv]
    ups = [up.outputs // 2] * 2 if model.gated_mlp else [up.outputs]
    matrices = [*((qkv.inputs, outputs) for outputs in attention), (o.inputs, o.outputs)]
    if with_mlp:
        matrices += [*((up.inputs, outputs) for outputs in ups), (down.inputs, down.outputs)]
    return matrices
