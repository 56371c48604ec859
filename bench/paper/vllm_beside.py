"""Does an unmodified vLLM hold, preempt and find again what our paged backends do? No figure of the
paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure as Drawing

from bench.errors import SettingError
from bench.paper.figure import Row
from bench.paper.over_time import Curve
from bench.paper.reading import number, percent, row
from bench.paper.task import Point, Task
from bench.paper.vllm_beside_cases import (
    APART,
    APART_SHARE,
    BOTH,
    CASES,
    ENGINES,
    FRAGBENCH,
    IN_USE,
    MOST,
    SHOWN,
    TRACES,
    VLLM,
    Case,
    Shown,
)
from bench.paper.vllm_beside_drawing import draw
from bench.report.results import Run
from workloads.base import WorkloadError
from workloads.trace_file import find_trace


class VllmBeside:
    """Blocks in use over time, preemptions, prefix hits and TTFT of both engines."""

    name = "vllm_beside"
    title = "an unmodified vLLM beside our paged backends on the same traffic"
    files = None

    def rows(self, task: Task) -> list[Row]:
        task.refuse_settings(("experiment", "engine", "kv_budget"))
        _check_traces()
        runs = task.run([_point(task, case, engine) for case in CASES for engine in ENGINES])
        return [each for case in CASES for each in _case_rows(runs, case)]

    def draw(self, rows: Sequence[Row]) -> Drawing:
        return draw(rows)


def _check_traces() -> None:
    """Raises SettingError for one that is not there, before anything runs."""
    for name in TRACES:
        try:
            find_trace("workload.path", name)
        except WorkloadError as error:
            raise SettingError(f"figure {VllmBeside.name}: {error}") from error


def _name(case: Case, engine: str) -> str:
    return f"{case.key},{case.backend},{ENGINES[engine]}"


def _point(task: Task, case: Case, engine: str) -> Point:
    settings = case.settings(quick=task.quick)
    return Point(_name(case, engine), (*settings, f"engine={ENGINES[engine]}"))


def _case_rows(runs: Mapping[str, Run], case: Case) -> list[Row]:
    mine = {engine: runs.get(_name(case, engine)) for engine in ENGINES}
    samples = {engine: _blocks(run) for engine, run in mine.items()}
    return [
        *(each for engine, run in mine.items()
          for each in _engine_rows(run, samples[engine], case, engine)),
        *_difference(mine[VLLM], apart(samples[FRAGBENCH], samples[VLLM]), case),
    ]  # fmt: skip


def _blocks(run: Run | None) -> pd.DataFrame:
    """`time_s` and `blocks_used`, a row a sample."""
    columns = ("time_s", "blocks_used")
    if run is None:
        return pd.DataFrame(columns=columns, dtype=float)
    return run.timeline.read(columns, run.notes).dropna().astype(float)


def apart(ours: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """At each sample of theirs: `apart`, by how many blocks it is above ours, and `of_ours`, the
    same as a share of ours, 0 where both have none. Ours is the sample that is nearest in time."""
    if ours.empty or theirs.empty:
        return pd.DataFrame(columns=["time_s", "apart", "of_ours"], dtype=float)
    both = pd.merge_asof(theirs, ours, on="time_s", direction="nearest", suffixes=("", "_ours"))
    both["apart"] = both["blocks_used"] - both["blocks_used_ours"]
    both["of_ours"] = (both["apart"] / both["blocks_used_ours"]).where(both["apart"] != 0, 0.0)
    return both


def _engine_rows(run: Run | None, samples: pd.DataFrame, case: Case, engine: str) -> list[Row]:
    used = samples["blocks_used"]
    known = bool(len(used))
    return [
        _curve(run, float(used.mean()) if known else None, case, engine, IN_USE, "blocks",
               samples["time_s"], used),
        row(run, float(used.max()) if known else None, panel=case.panel, system=engine,
            quantity=MOST, unit="blocks"),
        *(row(run, _value(run, shown), panel=case.panel, system=engine,
              quantity=shown.quantity, unit=shown.unit) for shown in SHOWN),
    ]  # fmt: skip


def _value(run: Run | None, shown: Shown) -> float | None:
    read = percent if shown.unit == "%" else number
    return read(run, *shown.keys)


def _difference(run: Run | None, found: pd.DataFrame, case: Case) -> list[Row]:
    blocks, shares = found["apart"].abs(), 100 * found["of_ours"].abs()
    known = bool(len(found))
    said = f"of {len(found)} samples"
    return [
        _curve(run, float(blocks.max()) if known else None, case, BOTH, APART, "blocks",
               found["time_s"], found["apart"], said),
        row(run, float(shares.max()) if known else None, panel=case.panel, system=BOTH,
            quantity=APART_SHARE, unit="%", also=said),
    ]  # fmt: skip


def _curve(
    run: Run | None, ours: float | None, case: Case, system: str, quantity: str, unit: str,
    times_s: pd.Series[float], values: pd.Series[float], also: str = "",
) -> Curve:  # fmt: skip
    plain = row(run, ours, panel=case.panel, system=system, quantity=quantity, unit=unit, also=also)
    return Curve(
        panel=plain.panel, system=system, quantity=quantity, unit=unit, ours=ours,
        lengths=plain.lengths, note=plain.note, times_s=tuple(times_s), values=tuple(values),
    )  # fmt: skip
