"""Which cause of fragmentation costs most? Measured, beside the usual ranking. No figure of the
paper."""

from __future__ import annotations

import math
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
    """Reserved and allocated memory and driver calls, of one source of fragmentation at a time."""

    name = "sources"
    title = "what each source of fragmentation adds to peak reserved - peak allocated"
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
    references = {case.key: mine.get(case.reference or "") for case in CASES}
    added = {case.key: _added(mine[case.key], references[case.key]) for case in CASES}
    ranks = _ranks({case.key: added[case.key] for case in CASES if case.folklore})
    quantities = {
        case.key: [
            *_gap_values(mine[case.key]),
            (cases.ADDED, "GiB", added[case.key]),
            (cases.RANK, f"of {len(ranks)}", ranks.get(case.key)),
            *_counted(mine[case.key], case),
        ]
        for case in CASES
    }
    return [
        row(mine[case.key], value, panel=setting.panel, system=case.label, quantity=quantity,
            unit=unit, also=_note(case, mine[case.key], references[case.key]))
        for case in CASES
        for quantity, unit, value in quantities[case.key]
        if case.folklore or quantity not in (cases.ADDED, cases.RANK)
    ]  # fmt: skip


def _ranks(added: dict[str, float | None]) -> dict[str, int]:
    """1 for the case that adds most; none for one that is not known."""
    known = {key: value for key, value in added.items() if value is not None}
    ordered = sorted(known, key=known.__getitem__, reverse=True)
    return {key: rank for rank, key in enumerate(ordered, 1)}


def _memory(run: Run, until_s: float = math.inf) -> pd.DataFrame:
    """What was reserved and allocated at each sample up to then, in GiB."""
    columns = ("reserved_bytes", "allocated_bytes")
    timeline = run.timeline.read(("time_s", *columns), run.notes).dropna()
    return timeline.loc[timeline["time_s"] <= until_s, list(columns)] / GIB


def _gap_values(run: Run | None) -> list[Quantity]:
    memory = _memory(run) if run else pd.DataFrame()
    if memory.empty:
        return [(quantity, "GiB", None) for quantity in (cases.MEAN, cases.PEAK, cases.END)]
    gaps = memory["reserved_bytes"] - memory["allocated_bytes"]
    values = {cases.MEAN: gaps.mean(), cases.PEAK: gaps.max(), cases.END: gaps.iloc[-1]}
    return [(quantity, "GiB", float(value)) for quantity, value in values.items()]


def _added(run: Run | None, reference: Run | None) -> float | None:
    """Peak reserved - peak allocated beyond that of the reference, in GiB. Where one of the two
    ended early, peaks are those of samples up to then, of both: without a step's activations."""
    if run is None or reference is None:
        return None
    span_s = _common_span_s(run, reference)
    costs = [_peaks_gib(each) if span_s is None else _sampled_peaks_gib(each, span_s)
             for each in (run, reference)]  # fmt: skip
    mine, its = costs
    return None if mine is None or its is None else mine - its


def _common_span_s(run: Run, reference: Run) -> float | None:
    """How long both ran, where one of them did not complete; None where both did."""
    if run.completed and reference.completed:
        return None
    return min(_last_s(run), _last_s(reference))


def _last_s(run: Run) -> float:
    times = run.timeline.read(("time_s",), run.notes)["time_s"]
    return float(times.iloc[-1]) if len(times) else 0.0


def _peaks_gib(run: Run) -> float | None:
    reserved, allocated = (
        run.number("allocator", f"peak_{what}_bytes") for what in ("reserved", "allocated")
    )
    return None if reserved is None or allocated is None else (reserved - allocated) / GIB


def _sampled_peaks_gib(run: Run, span_s: float) -> float | None:
    memory = _memory(run, span_s)
    if memory.empty:
        return None
    return float(memory["reserved_bytes"].max() - memory["allocated_bytes"].max())


def _counted(run: Run | None, case: Case) -> list[Quantity]:
    """What the summary says; a source's own memory only where there is one."""
    if run is None:
        return []
    held = run.number("sources", case.key, "peak_bytes")
    calls = (run.summary.get("allocator") or {}).get("driver_calls")
    return [
        (cases.PEAKS, "GiB", _peaks_gib(run)),
        *([(cases.HELD, "GiB", held / GIB)] if held is not None else []),
        (cases.CALLS, "calls", None if calls is None else sum(calls.values())),
        (cases.RETRIES, "retries", run.number("allocator", "num_alloc_retries")),
    ]


def _note(case: Case, run: Run | None, reference: Run | None) -> str:
    said = f"folklore: {case.folklore}" if case.folklore else ""
    beyond = f"added to '{cases.LABELS[case.reference]}'" if case.reference else ""
    span_s = _common_span_s(run, reference) if run and reference else None
    cut = "" if span_s is None else f"added: by samples of the first {span_s:.0f} s of both"
    return "; ".join(filter(None, (said, beyond, cut)))
