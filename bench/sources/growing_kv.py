"""A second KV cache that grows by reallocation, as Hugging Face's DynamicCache does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.costs import StepWork
from bench.engine.sequence import Sequence as EngineSequence
from bench.sources.base import Quiet, Served, written_tokens
from bench.sources.room import Room
from bench.sources.settings import choice_of, side_model
from workloads.settings import count


class _Cache(NamedTuple):
    """A sequence's buffers, with room for so many tokens."""

    buffers: list[int]
    tokens: int


class GrowingKv(Quiet):
    """Each sequence has K and V of a second model, such as a draft model that runs along: a tensor
    each a layer (`layout=layer`; `sequence`: one in all), which are concatenated anew every
    `every_tokens` tokens, one after another as DynamicCache does: the longer one is taken while
    the old one is still there, which is let go before the next one's turn. The defaults are Llama
    3.2 1B's shape. A sequence that is refused memory goes on without its cache.
    """

    def __init__(
        self,
        *,
        every_tokens: int = 1,
        layout: str = "layer",
        layers: int = 16,
        kv_heads: int = 8,
        head_dim: int = 64,
    ) -> None:
        fix = "give how often it grows, such as 1"
        self._every = count(
            "sources.growing_kv.every_tokens", every_tokens, 1, 65_536, "tokens", fix
        )
        layout = choice_of("sources.growing_kv.layout", layout, ("layer", "sequence"))
        model = side_model("growing_kv", layers, kv_heads, head_dim)
        per_layer = layout == "layer"
        self._buffers = 2 * model.layers if per_layer else 1
        self._slot_bytes = model.plane_bytes if per_layer else model.token_bytes
        self._caches: dict[int, _Cache | None] = {}  # None: it goes on without
        self._counts = Counter(reallocations=0, given_up=0)

    def start(self, served: Served, room: Room) -> None:
        self._room = room

    def step_begins(self, sequences: Sequence[EngineSequence], work: StepWork) -> None:
        for sequence in sequences:
            cache = self._caches.setdefault(sequence.id, _Cache([], 0))
            tokens = written_tokens(sequence) * sequence.branches
            if cache is not None and cache.tokens < tokens:
                self._caches[sequence.id] = self._grown(cache, tokens)

    def _grown(self, cache: _Cache, tokens: int) -> _Cache | None:
        """Longer buffers in place of the old ones, one at a time; None where one is refused, with
        nothing left of either."""
        tokens = -(-tokens // self._every) * self._every
        old = cache.buffers
        new: list[int] = []
        for place in range(self._buffers):
            buffer = self._room.take([tokens * self._slot_bytes])
            if buffer is None:
                self._room.give(new + old[place:])
                self._counts["given_up"] += 1
                return None
            new += buffer
            self._room.give(old[place : place + 1])
        self._counts["reallocations"] += bool(old)
        return _Cache(new, tokens)

    def left(self, sequence: int) -> None:
        cache = self._caches.pop(sequence, None)
        if cache is not None:
            self._room.give(cache.buffers)

    def counts(self) -> Mapping[str, int]:
        return dict(self._counts)
