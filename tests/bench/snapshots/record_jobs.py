"""Programs whose allocator is recorded on the virtual GPU, and what it held after each step."""

from __future__ import annotations

import pickle
import random
from contextlib import nullcontext
from typing import Any

import torch

from bench.snapshots.replay_job import replay

MIB = 1 << 20
KINDS = ("allocated", "reserved")
cuda: Any = torch.cuda
bindings: Any = torch._C


class Program:
    """Allocates and frees at random: on several streams, in private pools, of all sizes; some
    programs empty the cache as well. Notes bytes allocated and reserved after each step that a
    history shows."""

    def __init__(self, seed: int, most_mib: int, *, empties: bool) -> None:
        self._empties = empties
        self._random = random.Random(seed)
        self._most_mib = most_mib
        self._streams = [cuda.default_stream(), cuda.Stream(), cuda.Stream()]
        self._pools = [cuda.MemPool() for _ in range(2)]
        self._tensors: list[tuple[torch.Tensor, bool]] = []
        self._pending = 0
        self.truth: list[tuple[int, ...]] = []

    def note(self) -> None:
        stats = bindings._cuda_memoryStats(0)  # torch.cuda.memory_stats() takes ten times as long
        self.truth.append(tuple(stats[f"{kind}_bytes"]["all"]["current"] for kind in KINDS))

    def step(self) -> None:
        roll = self._random.random()
        if roll < 0.56 or not self._tensors:
            self._allocate()
        elif roll < 0.97 or not self._empties:
            self._free()
        else:
            self._complete()
            before = self.truth[-1] if self.truth else (0, 0)
            cuda.empty_cache()
            self.note()
            if self.truth[-1] == before:
                self.truth.pop()  # it leaves no trace

    def _allocate(self) -> None:
        self._complete()
        stream = self._random.choice(self._streams)
        pool = self._random.choice([None, None, None, *self._pools])
        try:
            with cuda.stream(stream), cuda.use_mem_pool(pool) if pool else nullcontext():
                tensor = self._tensor()
        except torch.OutOfMemoryError:
            self.note()
            return
        shared = self._random.random() < 0.2
        if shared:
            others = [each for each in self._streams if each != stream]
            tensor.record_stream(self._random.choice(others))
        self._tensors.append((tensor, shared))
        self.note()

    def _complete(self) -> None:
        """Frees that waited complete as an allocation begins, and before a cache is emptied."""
        for _ in range(self._pending):
            self.note()
        self._pending = 0

    def _tensor(self) -> torch.Tensor:
        size = int(2 ** self._random.uniform(7, 20 + self._most_mib.bit_length()))
        return torch.empty(size, dtype=torch.uint8, device="cuda")

    def _free(self) -> None:
        place = self._random.randrange(len(self._tensors))
        shared = self._tensors.pop(place)[1]
        self.note()
        if shared:
            self._pending += 1
        else:
            self.note()


def record(payload: dict[str, Any]) -> dict[str, Any]:
    """Runs a program for `unseen` steps, then records `steps` more into the file `path`, with call
    stacks or without."""
    program = Program(payload["seed"], payload["most_mib"], empties=payload["stacks"])
    for _ in range(payload["unseen"]):
        program.step()
    cuda.memory._record_memory_history(
        context="all" if payload["stacks"] else None,
        max_entries=payload["max_entries"],
        stacks="python",  # the others take longer, and nobody reads them
    )
    program.truth = []
    program.note()
    for _ in range(payload["steps"]):
        program.step()
    snapshot = bindings._cuda_memorySnapshot(None)
    with open(payload["path"], "wb") as file:
        pickle.dump(snapshot, file, protocol=4)
    stats = bindings._cuda_memoryStats(0)
    counts = {name: stats[name] for name in ("num_alloc_retries", "num_ooms")}
    return {"truth": program.truth, **counts}


replay_job = replay
