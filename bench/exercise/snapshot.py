"""Exercise c: a memory snapshot of traffic of variable lengths, drawn as a map over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bench.errors import SettingError
from bench.exercise.base import Number, Outcome, Own
from bench.exercise.pieces import ALLOCATED, RELEASABLE, pieces_of, total
from bench.exercise.wording import amount, counted
from bench.paper.task import Point, Task
from bench.report.results import Run
from bench.snapshots.before import read_history
from bench.snapshots.memory_map import MemoryMap, draw_memory_maps
from bench.snapshots.plain_pickle import load_plain
from bench.snapshots.releases import reserved_after
from bench.snapshots.trace import Action, History

FILE = "memory_snapshot.pickle"
VIEWER = "https://pytorch.org/memory_viz"
TRAFFIC = ("model=llama3_8b", "gpu=a100_40gb", "workload=mixed", "workload.rate_rps=2",
           "backend=contiguous", "backend.reserve=oracle", "backend.layout=sequence",
           "memory_snapshot=true")  # fmt: skip


class Snapshot:
    """A short run of the engine that is cut in the middle, with its memory still in use."""

    name = "c"
    title = "a memory snapshot of a variable-length workload, drawn as a map over time"
    own: Mapping[str, Number] = {
        "seconds": Number(30, 1, 3600, "seconds", "of the run's clock, after which it is cut")
    }
    takes = None
    varied = ("memory_snapshot", "stop_after_s")

    def run(self, task: Task, own: Own) -> Outcome:
        cut = f"stop_after_s={own['seconds']:.0f}"
        run = task.run([Point(self.name, (*TRAFFIC, cut))])[self.name]
        if task.exit_code or not (run.path / FILE).is_file():
            raise SettingError(
                f"the run left no snapshot ({run.cause or run.device}): take device=virtual or "
                "device=cuda, and traffic that it can serve."
            )
        path = (run.path / FILE).rename(task.folder / FILE)
        snapshot = load_plain(path)
        history = read_history(snapshot)
        read = read_state(history, snapshot["segments"])
        title = f"{run.backend}, {run.workload}: allocated and reserved, and every block"
        return Outcome(
            finding(read, run, str(path)),
            {"device": run.device, "snapshot": str(path), **asdict(read)},
            lambda: _draw(MemoryMap(title, history)),
        )


@dataclass(frozen=True, slots=True)
class State:
    """What a history and the segments at its end say, in bytes and counts."""

    events: int
    allocations: int
    peak_requested_bytes: int
    peak_reserved_bytes: int
    free_pieces: int
    free_bytes: int
    largest_piece_bytes: int
    segments: int
    releasable_bytes: int


def read_state(history: History, segments: list[Mapping[str, Any]]) -> State:
    """The peaks of a history, and the free pieces of the segments that it ends with."""
    actions, sizes = history.rows["action"], history.rows["size"].astype(np.int64)
    change = sizes * (actions == Action.ALLOC) - sizes * (actions == Action.FREE_COMPLETED)
    pieces = [piece for segment in segments for piece in pieces_of(segment)]
    free = [piece.nbytes for piece in pieces if piece.kind != ALLOCATED]
    before = int(history.segments["size"].sum())
    return State(
        events=len(history.rows),
        allocations=int((actions == Action.ALLOC).sum()),
        peak_requested_bytes=int(
            history.blocks["requested"].sum() + change.cumsum().max(initial=0)
        ),
        peak_reserved_bytes=int(reserved_after(history).max(initial=before)),
        free_pieces=len(free),
        free_bytes=sum(free),
        largest_piece_bytes=max(free, default=0),
        segments=len(segments),
        releasable_bytes=total(pieces, RELEASABLE),
    )


def finding(state: State, run: Run, path: str) -> tuple[str, str]:
    """How much more was reserved than needed, and what is free when the run was cut."""
    lengths = run.requests.read(("prompt_tokens", "output_tokens"), run.notes).sum(axis=1)
    more = state.peak_reserved_bytes - state.peak_requested_bytes
    return (
        f"In {state.allocations:,} allocations for {counted(len(lengths), 'request')} of "
        f"{lengths.min():,.0f} to {lengths.max():,.0f} tokens at most "
        f"{amount(state.peak_requested_bytes)} were in use at a time and "
        f"{amount(state.peak_reserved_bytes)} reserved, {amount(more)} more than was ever needed.",
        f"When the run was cut {amount(state.free_bytes)} lay free in "
        f"{counted(state.free_pieces, 'piece')} of {counted(state.segments, 'segment')}, "
        f"{amount(state.largest_piece_bytes)} in the largest, and "
        f"{amount(state.releasable_bytes)} of it could go back to the driver; {VIEWER} opens "
        f"{path}.",
    )


def _draw(shown: MemoryMap) -> Figure:
    return draw_memory_maps([shown], height_in=5.0)
