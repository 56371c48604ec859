"""How far can a vLLM's gpu_memory_utilization go, and what does each point of it buy? No figure of
the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure as Drawing

from bench.paper.figure import Row
from bench.paper.reading import number, row
from bench.paper.task import Point, Task
from bench.paper.vllm_runs import MIB, death, in_units, kv_blocks, peak_beside_kv_mib
from bench.paper.vllm_utilization_cases import (
    BLOCKS,
    COMPLETED,
    DIED,
    FOR_A_POINT,
    FREE,
    KEPT,
    KEPT_SHARE,
    PROFILED,
    SYSTEMS,
    TAKEN,
    TOKENS,
    UNUSED,
    UTILIZATIONS,
    WANTED,
    X_IS,
    System,
)
from bench.paper.vllm_utilization_drawing import draw
from bench.report.results import Run

PRESET = "vllm_utilization"
REQUESTS = 160


class VllmUtilization:
    """KV blocks, throughput and outcome of an unmodified vLLM, by its utilization."""

    name = "vllm_utilization"
    title = "vLLM at utilization 0.85 to 0.99: where it dies, and what each point buys"
    files = None

    def rows(self, task: Task) -> list[Row]:
        task.refuse_settings(("experiment", "engine"))
        cases = [Case(system, share) for system in SYSTEMS for share in UTILIZATIONS]
        runs = task.run([_point(task, case) for case in cases])
        if all(run.status in ("completed", "failed") for run in runs.values()):
            task.exit_code = 0  # a run that memory ended is a result here, and a note says so
        return [each for case in cases for each in _rows(runs, case)]

    def draw(self, rows: Sequence[Row]) -> Drawing:
        return draw(rows)


Value = tuple[str, str, float | None, str]
"""A row's quantity, unit, value, and what its note says besides."""


class Case(NamedTuple):
    """One run."""

    system: System
    share: float

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.system.key},utilization={self.share:g}"


def _point(task: Task, case: Case) -> Point:
    settings = (f"utilization={case.share}", f"alloc_conf={case.system.alloc_conf}")
    return Point(case.name, (f"experiment={PRESET}", *task.backlog(REQUESTS), *settings))


def _rows(runs: Mapping[str, Run], case: Case) -> list[Row]:
    run = runs.get(case.name)
    sent = number(run, "requests", "sent")
    values: list[Value] = [
        (BLOCKS, "blocks", kv_blocks(run), ""),
        (COMPLETED, "requests", number(run, "requests", "completed"),
         f"of {sent:.0f}" if sent else ""),
        (TOKENS, "tokens/s", _tokens_per_s(run), ""),
        ("mean batch while memory-bound", "requests",
         number(run, "memory_bound", "batch_mean"), ""),
        ("preemptions", "preemptions", number(run, "preemptions"), ""),
        ("left of the card once started", "MiB", in_units(run, MIB, "headroom_bytes"), ""),
        (PROFILED, "MiB", in_units(run, MIB, "activation_peak_bytes"), ""),
        (TAKEN, "MiB", peak_beside_kv_mib(run), ""),
        (UNUSED, "MiB", _unused_mib(run), ""),
        *_death_values(run),
        *_bought(runs, case),
    ]  # fmt: skip
    return [
        row(run, value, panel="", system=case.system.label, x=case.share, x_is=X_IS,
            quantity=quantity, unit=unit, also=also)
        for quantity, unit, value, also in values
    ]  # fmt: skip


def _death_values(run: Run | None) -> list[Value]:
    """None of a run that did not die of an allocation."""
    died = death(run)
    if died is None:
        return []
    return [
        (DIED, "steps", died.step, ""),
        (WANTED, "MiB", died.wanted_mib, ""),
        (FREE, "MiB", died.free_mib, ""),
        (KEPT, "MiB", died.kept_mib, ""),
        (KEPT_SHARE, "%", 100 * died.kept_share, ""),
    ]


def _tokens_per_s(run: Run | None) -> float | None:
    return number(run, "throughput", "output_tokens_per_s")


def _unused_mib(run: Run | None) -> float | None:
    """What is reserved beyond the largest need, by samples: PyTorch has, and cannot use, so much.
    Before it serves vLLM reserves more and gives it back."""
    peak = number(run, "allocator", "peak_allocated_bytes")
    if run is None or peak is None or not run.completed:
        return None
    reserved = run.timeline.read(("reserved_bytes",), run.notes)["reserved_bytes"]
    return float(reserved.max() - peak) / MIB


def _bought(runs: Mapping[str, Run], case: Case) -> list[Value]:
    """What one more percent of the card gave, since the utilization before."""
    place = UTILIZATIONS.index(case.share)
    if not place:
        return []
    before = Case(case.system, UTILIZATIONS[place - 1])
    points = 100 * (case.share - before.share)
    said = f"since {before.share:g}"
    return [
        (FOR_A_POINT.format(quantity), unit,
         _slope(read(runs.get(before.name)), read(runs.get(case.name)), points), said)
        for quantity, unit, read in (
            (BLOCKS, "blocks", kv_blocks), (TOKENS, "tokens/s", _tokens_per_s)
        )
    ]  # fmt: skip


def _slope(before: float | None, now: float | None, points: float) -> float | None:
    return None if before is None or now is None else (now - before) / points
