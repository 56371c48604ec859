"""Sources on the virtual GPU: jobs that move sequences by hand, or have a small engine do it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch
from hydra.utils import instantiate

from backends.base import Backend, KvLayout
from backends.contiguous import Contiguous
from backends.paged import Paged
from bench.device.stats import DriverCalls, hold_back
from bench.engine.activations import Activations, record
from bench.engine.engine import step_work
from bench.engine.scheduler import Plan
from bench.engine.sequence import Sequence
from bench.sources.active import Sources
from bench.sources.base import Served, Source
from bench.sources.beams import Beams
from bench.sources.graphs import Graphs
from bench.sources.room import Headroom, Room
from bench.sources.speculative import Speculative
from tests.bench.engine.lab import SHAPE, Lab, limits
from workloads.base import Request
from workloads.survivors.uniform import UniformSurvivors

MIB = 1 << 20
GIB = 1 << 30
TOKEN_BYTES = 4096  # K and V of SHAPE: 2 x 2 layers x 8 heads x 64 x 2 bytes


def _served(seed: int = 0, run_step: Callable[[int, int], None] = lambda *_: None) -> Served:
    return Served(SHAPE, 1, TOKEN_BYTES, 8, seed, run_step)


def sequence(number: int, prompt_tokens: int = 10) -> Sequence:
    return Sequence(Request(number, 0.0, prompt_tokens, 1000), 0.0)


class Stage:
    """One source in its room, told of sequences that are prefilled at once and then decode."""

    def __init__(self, source: Source, served: Served, limit_bytes: int = GIB) -> None:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        self.source = source
        self.room = Room(Headroom(limit_bytes), source.planned_bytes(served))
        source.start(served, self.room)

    def step(self, *sequences: Sequence) -> None:
        """A step that gives each of them a token."""
        for each in sequences:
            each.chunk = each.known - each.computed
        work = step_work(Plan(list(sequences)))
        self.source.step_begins(sequences, work)
        self.source.step_ended(sequences, work)
        for number, each in enumerate(sequences):
            each.compute_chunk()
            each.give_token(number, 0.0)


def _source(settings: dict[str, Any]) -> Source:
    made: Source = instantiate(settings, _convert_="all")
    return made


def held_by_step(payload: dict[str, Any]) -> dict[str, Any]:
    """Bytes held after each of `steps` steps of sequences 0, 1, ..., then after each left."""
    stage = Stage(_source(payload["source"]), _served(), payload.get("limit", GIB))
    sequences = [sequence(n) for n in range(payload.get("sequences", 1))]
    held, peaks = [], []
    for _ in range(payload["steps"]):
        stage.step(*sequences)
        held.append(stage.room.held_bytes)
        peaks.append(stage.room.peak_bytes)
    left = []
    for each in sequences:
        stage.source.left(each.id)
        left.append(stage.room.held_bytes)
    return {"held": held, "peaks": peaks, "left": left, "refused": stage.room.refused,
            "allocations": stage.room.allocations, "counts": dict(stage.source.counts()),
            "planned": stage.room.planned_bytes}  # fmt: skip


def lora_slots(payload: dict[str, Any]) -> list[Any]:
    """Two adapters and one slot: what is held, and the counts, as users come and go."""
    stage = Stage(_source(payload["source"]), _served())
    users: dict[int, list[Sequence]] = {0: [], 1: []}
    number = 0
    while min(map(len, users.values())) < 2:  # two requests of each adapter
        adapter = stage.source._adapter(number)  # type: ignore[attr-defined]
        users[adapter].append(sequence(number))
        number += 1
    first, again, other, later = users[0][0], users[0][1], users[1][0], users[1][1]
    seen = []
    stage.step(first, other)  # one slot: the first in line has it
    seen.append([stage.room.held_bytes, dict(stage.source.counts())])
    stage.source.left(first.id)
    stage.step(again)  # still loaded
    seen.append([stage.room.held_bytes, dict(stage.source.counts())])
    stage.source.left(again.id)
    stage.step(later)  # nobody uses it any more
    seen.append([stage.room.held_bytes, dict(stage.source.counts())])
    return seen


def beams_by_hand(payload: dict[str, Any]) -> dict[str, Any]:
    """Forks and slots of a search, beside those that its survivors say."""
    width, steps, page = 3, 40, 16
    stage = Stage(Beams(share=1, width=width, page_tokens=page), _served())
    each = sequence(0)
    stage.step(each)  # the prompt: nothing is forked before the first token
    before = stage.room.held_bytes
    slots, forks = [0] * width, 0
    survivors = UniformSurvivors().steps(0, 0, width)
    held, expected = [], []
    for tokens in range(1, steps + 1):
        parents = next(survivors)
        for beam in range(1, width):
            if parents[beam] != beam:
                forks += 1
                slots[beam] = 0
            if slots[beam] < tokens:
                slots[beam] += -(-(tokens - slots[beam]) // page) * page
        stage.step(each)
        held.append(stage.room.held_bytes)
        expected.append(sum(slots) * TOKEN_BYTES)
    return {"before": before, "held": held, "expected": expected, "forks": forks,
            "counts": dict(stage.source.counts())}  # fmt: skip


def rooms_that_are_short(payload: dict[str, Any]) -> dict[str, Any]:
    """What a card with 40 MiB left gives, and how often it is asked."""
    torch.cuda.init()  # type: ignore[no-untyped-call]
    free, _ = torch.cuda.mem_get_info()
    hold_back(free - 40 * MIB)
    headroom = Headroom(GIB)
    room = Room(headroom)
    ooms: list[int] = []

    def take(sizes: list[int]) -> bool:
        taken = room.take(sizes)
        ooms.append(torch.cuda.memory_stats()["num_ooms"])
        return taken is not None

    kept = room.take([10 * MIB])
    got = [take([20 * MIB, 20 * MIB])]  # the first of the two fits
    allocated = torch.cuda.memory_allocated()
    got += [take([40 * MIB]), take([50 * MIB])]  # not asked: nothing was given back
    got.append(take([20 * MIB]))  # less than what was refused
    assert kept is not None
    room.give(kept)
    got.append(take([50 * MIB]))  # asked again
    return {"got": got, "ooms": ooms, "allocated": allocated, "refused": room.refused,
            "held": room.held_bytes}  # fmt: skip


def graphs(payload: dict[str, Any]) -> dict[str, Any]:
    """Batches of these sizes, then the end: captures, pools' memory and what is reserved."""
    activations = Activations(record(SHAPE, 1), ages=False, driver_calls=lambda: 0)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    served = _served(run_step=activations.replay)
    stage = Stage(Graphs(**payload["settings"]), served, payload.get("limit", GIB))
    sequences = [sequence(n) for n in range(max(payload["batches"]))]
    stage.step(*sequences)  # prompts: no graph
    prompts = stage.room.held_bytes
    captures, held_by_step = [], []
    for batch in payload["batches"]:
        stage.step(*sequences[:batch])
        captures.append(stage.source.counts()["captures"])
        held_by_step.append(stage.room.held_bytes)
    torch.cuda.empty_cache()  # leaves the pools: graphs use them
    kept = torch.cuda.memory_reserved() - before
    held, dropped = stage.room.held_bytes, stage.source.counts()["dropped"]
    stage.source.stop()
    gc.collect()
    torch.cuda.empty_cache()
    return {"prompts": prompts, "captures": captures, "kept": kept, "held": held,
            "dropped": dropped, "left": stage.room.held_bytes, "held_by_step": held_by_step,
            "refused": stage.room.refused,
            "reserved": torch.cuda.memory_reserved() - before}  # fmt: skip


BACKENDS: dict[str, Callable[[], Backend]] = {
    "paged": Paged,
    "contiguous": lambda: Contiguous(reserve="grow"),
}


def in_an_engine(payload: dict[str, Any]) -> dict[str, Any]:
    """Twelve requests through a small engine with one source; what it held is compared with the
    allocator at each step. With `short` the card has little beside the KV budget."""
    sources = Sources({"it": _source(payload["source"])})
    calls = DriverCalls()
    activations = Activations(
        record(SHAPE, 1), ages=False, driver_calls=lambda: sum(calls.read().values())
    )
    torch.cuda.empty_cache()
    budget = 64 * MIB
    planned = sources.plan(_served(payload.get("seed", 0), activations.replay))
    backend = BACKENDS[payload["backend"]]()
    backend.start(KvLayout(2, TOKEN_BYTES, 512, budget, "cuda", others=sources.others))
    sources.start(payload.get("headroom", 256 * MIB))
    before = torch.cuda.memory_allocated()
    lab = Lab(backend, budget, TOKEN_BYTES, limits(token_budget=256, max_num_seqs=8),
              activations=activations, driver_calls=calls.read, sources=sources)  # fmt: skip
    for number in range(12):
        lab.add(30 + number * 37 % 200, 5 + number * 13 % 60)
    differences, sums = set(), set()
    while not lab.engine.idle:
        assert lab.step() is not None
        usage = backend.usage()
        sums.add(usage.held + usage.rounding + usage.cached + usage.free - budget)
        if payload["backend"] == "paged":  # whose pool is all of KV, from the start
            now = torch.cuda.memory_allocated() - before
            differences.add(now - sources.others().allocated)
    idle_bytes = sources.rows(0.0)[0]["held_bytes"]
    lab.engine.stop(lab.now)
    gc.collect()
    backend.check_integrity()
    return {
        "differences": sorted(differences), "sums": sorted(sums), "planned": planned,
        "idle": idle_bytes, "summary": sources.summary()["it"],
        "left": torch.cuda.memory_allocated() - before, "others": list(sources.others()),
        "completed": len(lab.ends), "seconds": lab.now, "incidents": lab.engine.incidents.drain(),
    }  # fmt: skip


def accepted(payload: dict[str, Any]) -> list[int]:
    """Slots kept after each of 30 steps, for a seed."""
    stage = Stage(Speculative(acceptance=0.5), _served(payload["seed"]))
    each = sequence(3)
    held = []
    for _ in range(30):
        stage.step(each)
        held.append(stage.room.held_bytes)
    return held
