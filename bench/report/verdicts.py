"""The parts of the page that are there only where runs were made for them: sweeps of rates, changed
constants, hours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from bench.report.quantities import format_number
from bench.report.rates import Line, Sweep
from bench.report.results import Run
from bench.report.sections import of_workload, runs_section
from bench.report.sensitivity import Ranking
from bench.report.tables import UNDEFINED, Footnotes, definitions, row, run_name, table

RATE_COLUMNS = {
    "highest rate held": "requests/s offered, up to which enough requests met the objective at "
    "every rate that was run",
    "missed at": "the lowest rate at which too few did",
    "most goodput": "requests/s completed within the objective, at the rate where they were most",
    "at a rate of": "requests/s offered there",
}
HOURS_COLUMNS = {
    "hours": "of the run's clock, over all of its segments",
    "restarts": "workers that died, and were followed by another",
    "lost": "requests that were open when a worker died",
    "slope": "of reserved - allocated, in MiB an hour: median of the slopes between points of one "
    "segment, after warm-up",
    "interval": "95 %, by a block bootstrap of the residuals",
    "verdict": "grows: the interval lies above 0; no growth: it lies within 1 % of the card's "
    "memory a day; not settled: neither",
    "full in": "where it grows: hours until reserved memory meets the card's",
}
TOO_SHORT = "fewer than 60 samples after warm-up, or no allocator"


def rates_html(found: Sequence[Sweep], figure: Callable[[str], str]) -> str:
    """What each backend serves within the objective; empty without a sweep of rates."""
    if not found:
        return ""
    parts = []
    for workload in dict.fromkeys(sweep.workload for sweep in found):
        own = [sweep for sweep in found if sweep.workload == workload]
        tables = "".join(_rates_table(sweep) for sweep in own)
        parts.append(of_workload(workload, figure(workload) + tables))
    return (
        '<section id="rates"><h2>Rates served within the objective</h2>'
        f"{''.join(parts)}{definitions(RATE_COLUMNS)}</section>"
    )


def _rates_table(sweep: Sweep) -> str:
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in ("backend", *RATE_COLUMNS))
    rows = [
        row(line.run, run_name(line.run, line.label), _rate_cells(line)) for line in sweep.lines
    ]
    left_out = [run.name for line in sweep.lines for run in line.left_out]
    note = f'<p class="notes">Not completed, and left out: {escape("; ".join(left_out))}.</p>'
    return table(f"workload {sweep.workload}", heads, rows) + (note if left_out else "")


def _rate_cells(line: Line) -> str:
    best = max(line.points, key=lambda point: point.goodput)
    return (
        f'<td data-value="{line.held or 0:.6g}">{line.knee_said()}</td>'
        f"{_rate(line.missed)}{_rate(best.goodput)}{_rate(best.offered)}"
    )


def _rate(value: float | None) -> str:
    if value is None:
        return f"<td>{UNDEFINED}</td>"
    return f'<td data-value="{value:.6g}">{format_number(value)}</td>'


def rankings_html(found: Mapping[str, Sequence[Ranking]]) -> str:
    """Which rankings survive a change of each constant of the cost model; empty without any."""
    if not found:
        return ""
    parts = []
    for place, each in found.items():
        items = "".join(f"<li>{_ranking(ranking)}</li>" for ranking in each)
        whole = f'<h3>{escape(place)}</h3><ul class="rankings">{items}</ul>'
        parts.append(of_workload(each[0].workload, whole) if each else "")
    return (
        '<section id="rankings"><h2>Do the rankings hold?</h2>'
        '<p class="notes">Constants of the cost model, changed one at a time (an efficiency stays '
        "at 100 % at most); runs within 1 %, or that repeats do not tell apart, count as even."
        f"</p>{''.join(parts)}</section>"
    )


def _ranking(ranking: Ranking) -> str:
    head = f"<b>{escape(ranking.quantity.heading)}</b>: {escape(ranking.order_said())}"
    if not ranking.pairs:
        return f"{head}. None is ahead of another."
    if not ranking.overturned:
        return f"{head}. Holds under all {ranking.changes} changes."
    said = "; ".join(
        f"{better} over {worse} is not settled: not shown with {', '.join(changes[:4])}"
        + (f" and {len(changes) - 4} more" if len(changes) > 4 else "")
        for (better, worse), changes in ranking.overturned.items()
    )
    return f"{head}. {escape(said)}."


def hours_html(runs: Sequence[Run]) -> str:
    """Whether memory grew over hours, and what became of workers; empty without a soak."""
    soaks = [run for run in runs if "trend" in run.summary]
    if not soaks:
        return ""
    title = "Over hours: does it grow?"
    return runs_section("hours", title, soaks, HOURS_COLUMNS, _hours_cells, HOURS_COLUMNS)


def _hours_cells(run: Run, footnotes: Footnotes) -> str:
    found = run.summary["trend"]
    undefined = f"<td>{UNDEFINED}<sup>{footnotes.mark(TOO_SHORT)}</sup></td>" if not found else ""
    counts = [_cell(run.number("simulated_s"), 1 / 3600, 1)]
    counts += [_cell(run.number(*keys), 1, 0) for keys in (("restarts",), ("requests", "lost"))]
    if not found:
        return "".join([*counts, *[undefined] * 4])
    low, slope, high = (found[f"{name}_mib_per_h"] for name in ("low", "slope", "high"))
    return "".join([
        *counts,
        _cell(slope, 1, 1),
        f"<td>{low:+,.1f} to {high:+,.1f}</td>",
        f"<td>{escape(str(found['verdict']))}</td>",
        _cell(found["exhaustion_h"], 1, 1),
    ])  # fmt: skip


def _cell(value: Any, scale: float, digits: int) -> str:
    if value is None:
        return f"<td>{UNDEFINED}</td>"
    return f'<td data-value="{value * scale:.9g}">{value * scale:,.{digits}f}</td>'
