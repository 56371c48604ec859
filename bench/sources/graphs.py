"""CUDA graphs: static buffers of each captured batch size, and the private pool of captures."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from bench.costs import StepWork
from bench.engine.sequence import Sequence as EngineSequence
from bench.model.shape import ACTIVATION_BYTES
from bench.sources.base import Quiet, Served
from bench.sources.room import Room
from bench.sources.settings import choice_of
from workloads.settings import count

SMALLEST = (1, 2, 4)
INDEX_BYTES = 8
_cuda: Any = torch.cuda


class _Graph(NamedTuple):
    """A captured batch size: its static buffers, and the pool whose memory replays use, with what
    goes when the graph is dropped: all of a pool of its own, nothing of a shared one."""

    buffers: list[int]
    pool: Any
    pool_bytes: int


class Graphs(Quiet):
    """A step of decodes alone runs as a graph of its batch size, rounded up to 1, 2, 4 or a
    multiple of `step`, up to `largest`. At first use it is compiled and captured: the step runs
    once in the general allocator, then once in a private pool. All graphs share one
    (`pool=shared`), as those of vLLM and SGLang do: only one replays at a time, so that a capture
    finds what those before it left, and the pool grows by what is missing; it stays to the end.
    With `pool=own` each has its own, which lives as long as the graph. Static tensors for token
    ids, positions and slots, and for the hidden states, stay beside it. With `step=1` every batch
    size is a shape of its own and is compiled anew; beyond `most` graphs the least recently used
    one is dropped.

    Memory of a pool counts as reserved and not as allocated, though replays use it. Graphs take the
    headroom, not KV memory. A batch size that is refused memory runs without a graph from then on;
    what a shared pool grew by for it stays there, and is counted. What the step itself allocates
    stays as without graphs.
    """

    def __init__(
        self, *, step: int = 8, largest: int = 256, most: int = 512, pool: str = "shared"
    ) -> None:
        fix = "give the distance of captured batch sizes, such as 8; 1 captures each"
        self._step = count("sources.graphs.step", step, 1, 4096, "sequences", fix)
        fix = "give the largest batch that is captured, such as 256"
        self._largest = count("sources.graphs.largest", largest, 1, 65_536, "sequences", fix)
        fix = "give how many graphs may be kept, such as 512"
        self._most = count("sources.graphs.most", most, 1, 65_536, "graphs", fix)
        self._shares = choice_of("sources.graphs.pool", pool, ("shared", "own")) == "shared"
        self._shared: Any = None
        self._shared_bytes = 0
        self._graphs: OrderedDict[int, _Graph] = OrderedDict()  # the last used one last
        self._without: set[int] = set()
        self._counts = Counter(captures=0, dropped=0)

    def start(self, served: Served, room: Room) -> None:
        self._served, self._room = served, room
        self._shared = _cuda.MemPool() if self._shares else None

    def step_begins(self, sequences: Sequence[EngineSequence], work: StepWork) -> None:
        if work.decode_sequences != work.tokens or work.tokens > self._largest:
            return
        size = self._rounded(work.tokens)
        if size in self._graphs:
            self._graphs.move_to_end(size)
        elif size not in self._without:
            self._add(size)

    def _rounded(self, batch: int) -> int:
        small = next((size for size in SMALLEST if batch <= size), None)
        if small is not None and self._step > 1:
            return min(small, self._largest)
        return min(-(-batch // self._step) * self._step, self._largest)

    def _add(self, size: int) -> None:
        if len(self._graphs) >= self._most:
            self._drop(next(iter(self._graphs)))
            self._counts["dropped"] += 1
        graph = self._capture(size)
        if graph is None:
            self._without.add(size)
            return
        self._graphs[size] = graph
        self._counts["captures"] += 1

    def _capture(self, size: int) -> _Graph | None:
        hidden = self._served.model.hidden_size * ACTIVATION_BYTES
        buffers = self._room.take([size * INDEX_BYTES] * 3 + [size * hidden])
        if buffers is None:
            return None
        pool = self._shared or _cuda.MemPool()
        before = _reserved_bytes(pool)
        fits = self._record(size, pool)
        grown_bytes = _reserved_bytes(pool) - before
        if fits and not self._room.allows(grown_bytes):
            self._room.refuse(grown_bytes)
            fits = False
        if fits or self._shares:
            self._room.count(grown_bytes)
        if not fits:
            self._room.give(buffers)
        if self._shares:
            self._shared_bytes += grown_bytes
            grown_bytes = 0
        return _Graph(buffers, pool, grown_bytes) if fits else None

    def _record(self, size: int, pool: Any) -> bool:
        """Runs a step in general memory and in the pool; False where the allocator refused."""
        self._room.moves += 1
        try:
            self._served.run_step(size, size)
            with _cuda.use_mem_pool(pool):
                self._served.run_step(size, size)
        except torch.OutOfMemoryError as error:
            self._room.refuse(getattr(error, "needed_bytes", None), str(error))
            return False
        return True

    def _drop(self, size: int) -> None:
        graph = self._graphs.pop(size)
        self._room.count(-graph.pool_bytes)
        self._room.give(graph.buffers)

    def stop(self) -> None:
        for size in list(self._graphs):
            self._drop(size)
        self._room.count(-self._shared_bytes)
        self._shared, self._shared_bytes = None, 0

    def counts(self) -> Mapping[str, int]:
        return dict(self._counts)


def _reserved_bytes(pool: Any) -> int:
    return sum(segment["total_size"] for segment in pool.snapshot())
