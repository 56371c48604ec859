"""Which cause of fragmentation costs most? Measured, beside the usual ranking. No figure of the
paper."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure as Drawing

from bench.paper import sources_cases as cases
from bench.paper.figure import Row
from bench.paper.reading import row
from bench.paper.sources_cases import CASES, SETTINGS, Case, Setting
from bench.paper.sources_drawing import draw
from bench.paper.task import Point, Task
from bench.report.results import Run

GIB = 1 << 30
Quantity = tuple[str, str, float | None]
"""A row's quantity, unit and value."""


class Sources:
    """Reserved - allocated and driver calls, of one source of fragmentation at a time."""

    name = "sources"
    title = "what each source of fragmentation adds to reserved - allocated"
    files = None

    def rows(self, task: Task) -> list[Row]:
        runs = task.run([_point(task, case, setting) for setting in SETTINGS for case in CASES])
        if all(run.number("allocator", "peak_reserved_bytes") for run in runs.values()):
            task.exit_code = 0  # a run that memory ended is a result here, and a note says so
        return [each for setting in SETTINGS for each in _setting_rows(runs, setting)]

    def draw(self, rows: Sequence[Row]) -> Drawing:
        return draw(rows)


def _point(task: Task, case: Case, setting: Setting) -> Point:
    overrides = (*cases.TRAFFIC, task.traffic_s(cases.TRAFFIC_S), *case.overrides)
    return Point(_name(case.key, setting), (*overrides, f"alloc_conf={setting.alloc_conf}"))


def _name(key: str, setting: Setting) -> str:
    return f"{key},{'expandable' if setting.alloc_conf else 'default'}"


def _setting_rows(runs: dict[str, Run], setting: Setting) -> list[Row]:
    mine = {case.key: runs.get(_name(case.key, setting)) for case in CASES}
    gaps = {key: _gaps_gib(run) for key, run in mine.items()}
    added = {case.key: _added(gaps, case) for case in CASES if case.folklore}
    ranks = _ranks(added)
    quantities = {
        case.key: [
            *_gap_values(gaps[case.key]),
            (cases.ADDED, "GiB", added.get(case.key)),
            (cases.RANK, f"of {len(ranks)}", ranks.get(case.key)),
            *_counted(mine[case.key], case),
        ]
        for case in CASES
    }
    return [
        row(mine[case.key], value, panel=setting.panel, system=case.label, quantity=quantity,
            unit=unit, also=_note(case))
        for case in CASES
        for quantity, unit, value in quantities[case.key]
        if case.folklore or quantity not in (cases.ADDED, cases.RANK)
    ]  # fmt: skip


def _ranks(added: dict[str, float | None]) -> dict[str, int]:
    """1 for the case that adds most; none for one that is not known."""
    known = {key: value for key, value in added.items() if value is not None}
    ordered = sorted(known, key=known.__getitem__, reverse=True)
    return {key: rank for rank, key in enumerate(ordered, 1)}


def _gaps_gib(run: Run | None) -> pd.Series | None:
    """Reserved - allocated at each sample; None without a run that has any."""
    if run is None:
        return None
    timeline = run.timeline.read(("reserved_bytes", "allocated_bytes"), run.notes)
    gaps = (timeline["reserved_bytes"] - timeline["allocated_bytes"]).dropna() / GIB
    return gaps if len(gaps) else None


def _gap_values(gaps: pd.Series | None) -> list[Quantity]:
    if gaps is None:
        return [(quantity, "GiB", None) for quantity in (cases.MEAN, cases.PEAK, cases.END)]
    values = {cases.MEAN: gaps.mean(), cases.PEAK: gaps.max(), cases.END: gaps.iloc[-1]}
    return [(quantity, "GiB", float(value)) for quantity, value in values.items()]


def _added(gaps: dict[str, pd.Series | None], case: Case) -> float | None:
    """The mean over time beyond that of the case's reference."""
    mine, reference = gaps[case.key], gaps.get(case.reference or "")
    return None if mine is None or reference is None else float(mine.mean() - reference.mean())


def _counted(run: Run | None, case: Case) -> list[Quantity]:
    """What the summary says; a source's own memory only where there is one."""
    if run is None:
        return []
    reserved, allocated = (
        run.number("allocator", f"peak_{what}_bytes") for what in ("reserved", "allocated")
    )
    peaks = None if reserved is None or allocated is None else (reserved - allocated) / GIB
    held = run.number("sources", case.key, "peak_bytes")
    calls = (run.summary.get("allocator") or {}).get("driver_calls")
    return [
        (cases.PEAKS, "GiB", peaks),
        *([(cases.HELD, "GiB", held / GIB)] if held is not None else []),
        (cases.CALLS, "calls", None if calls is None else sum(calls.values())),
        (cases.RETRIES, "retries", run.number("allocator", "num_alloc_retries")),
    ]


def _note(case: Case) -> str:
    said = f"folklore: {case.folklore}" if case.folklore else ""
    beyond = f"added to '{cases.LABELS[case.reference]}'" if case.reference else ""
    return "; ".join(filter(None, (said, beyond)))
