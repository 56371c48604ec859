"""The overview of one workload as a table of text, whatever markup it is written in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.report.differences import best
from bench.report.groups import by_workload, common, comparable, labels, times
from bench.report.quantities import Quantity, format_number
from bench.report.results import Run
from bench.report.sections import OVERVIEW
from bench.report.statistics import Estimate

PLUS_MINUS, UNDEFINED = "\N{PLUS-MINUS SIGN}", "\N{EN DASH}"
BEST_NOTE = (
    "Bold: best among the completed runs that differ only in backend, engine and allocator "
    "settings, and whatever it is not ahead of by more than 1 % and noise."
)


@dataclass(frozen=True)
class Cell:
    """A number as people read it, with its interval; `reason` is the number of the note that says
    why there is none."""

    text: str
    best: bool = False
    reason: int | None = None


@dataclass(frozen=True)
class Row:
    """One run, or several that differ in their seeds alone."""

    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class TextTable:
    """`headings` are pairs of a quantity and what it is in; `reasons` are notes by number."""

    workload: str
    title: str
    headings: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    reasons: tuple[str, ...]


def overview_tables(rows: Sequence[Run]) -> list[TextTable]:
    """One table a workload, with the columns of the report's first screen."""
    return [_table(workload, group) for workload, group in by_workload(rows).items()]


def estimate_said(quantity: Quantity, found: Estimate) -> str:
    """Such as `1.31`, `1.31 ± 0.02`, or `1.31 (1.30 to 1.35)` where the interval is lopsided; all
    with the digits that the value has."""
    said = format_number(found.value * quantity.scale, quantity.digits)
    if found.low is None or found.high is None:
        return said
    digits = len(said.partition(".")[2])
    ends = [format_number(end * quantity.scale, digits) for end in (found.low, found.high)]
    below, above = (
        format_number(apart * quantity.scale, digits)
        for apart in (found.value - found.low, found.high - found.value)
    )
    return f"{said} {PLUS_MINUS} {above}" if below == above else f"{said} ({' to '.join(ends)})"


def _table(workload: str, group: Sequence[Run]) -> TextTable:
    reasons: dict[str, int] = {}
    top = {each.column: _best(each, group) for each in OVERVIEW}
    rows = tuple(
        Row(
            label if run.completed else f"{label} ({run.status})",
            tuple(_cell(each, run, run.folder in top[each.column], reasons) for each in OVERVIEW),
        )
        for run, label in zip(group, labels(group), strict=True)
    )
    setting = [common(getattr(run, key) for run in group) for key in ("model", "gpu", "device")]
    title = f"{workload}: {', '.join(setting)}, {times(group)} times"
    headings = tuple((each.heading, _unit(each, group)) for each in OVERVIEW)
    return TextTable(workload, title, headings, rows, _notes(group, rows), tuple(reasons))


def _best(quantity: Quantity, group: Sequence[Run]) -> set[str]:
    return set().union(*(best(quantity, alike) for alike in comparable(group)))


def _cell(quantity: Quantity, run: Run, is_best: bool, reasons: dict[str, int]) -> Cell:
    found = quantity.estimate(run)
    if found is None:
        number = reasons.setdefault(quantity.why_undefined(run), len(reasons) + 1)
        return Cell(UNDEFINED, reason=number)
    return Cell(estimate_said(quantity, found), is_best)


def _unit(quantity: Quantity, group: Sequence[Run]) -> str:
    kind = times(group) if quantity.modelled else ""
    return ", ".join(filter(None, (quantity.unit, kind if kind != "unknown" else "")))


def _notes(group: Sequence[Run], rows: Sequence[Row]) -> tuple[str, ...]:
    notes = [BEST_NOTE] if any(cell.best for row in rows for cell in row.cells) else []
    counts = sorted({len(run.each) for run in group})
    if counts != [1]:
        said = " or ".join(map(str, counts))
        notes.append(f"Means of {said} repeats; intervals are 95 % bootstraps, from 5 repeats on.")
    return tuple(notes)
