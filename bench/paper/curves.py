"""Latency against request rate, a panel of curves; and what a system serves from a backlog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from bench.paper.drawing import of
from bench.paper.figure import Published, Row
from bench.paper.reading import number, row
from bench.paper.systems import System
from bench.report.results import Run

LATENCY, UNIT = "mean normalized latency", "s/token"
SERVED = "served from a backlog"
TITLE_END = f"(dotted: requests/s {SERVED})"
IN_NAMES = "backlog"
"""Stands in a run's name where others have their rate."""


def rates_rps(top: float, count: int, step: float) -> list[float]:
    """`count` rates, rising by one factor up to `top`, of three digits."""
    return [float(f"{top * step**below:.3g}") for below in range(count - 1, -1, -1)]


def latency_row(run: Run | None, panel: str, system: System, rate: float) -> Row:
    """The mean of E2E / output tokens of one run. The note says how long traffic came: above what
    a system serves, latency grows with it."""
    seconds = run.config["workload"]["duration_s"] if run else None
    return row(
        run,
        number(run, "normalized_latency_s", "mean"),
        panel=panel,
        system=system.label,
        x=rate,
        x_is="requests/s",
        quantity=LATENCY,
        unit=UNIT,
        also="" if seconds is None else f"{seconds:g} s of traffic",
    )


def served_rps(run: Run | None) -> float | None:
    """Requests/s of a run whose requests came all at once, from the completion of the first quarter
    to that of three: with memory full before, and requests waiting to the end, neither filling
    nor draining counts. None without two completions that far apart.
    """
    if run is None:
        return None
    requests = run.requests.read(("end_s", "status"), run.notes)
    ends = sorted(requests["end_s"][requests["status"] == "completed"])
    first, last = len(ends) // 4, 3 * len(ends) // 4
    if not first < last or ends[first] == ends[last]:
        return None
    return float((last - first) / (ends[last] - ends[first]))


def served_rows(
    runs: Mapping[System, Run | None],
    panel: str,
    best: System,
    others: Mapping[System, Published | None],
) -> list[Row]:
    """Of one panel's backlogs: what each system serves, and how many times that of each other one
    the `best` serves, beside what the paper says of it."""
    rates = {system: served_rps(runs[system]) for system in (*others, best)}

    def derived(system: System, quantity: str, unit: str, ours: float | None,
                paper: Published | None = None) -> Row:  # fmt: skip
        run = runs[system]
        return row(run, ours, panel=panel, system=system.label, quantity=quantity, unit=unit,
                   paper=paper, also=_backlog(run))  # fmt: skip

    rows = [derived(system, SERVED, "requests/s", rate) for system, rate in rates.items()]
    for system, paper in others.items():
        mine, theirs = rates[best], rates[system]
        ratio = mine / theirs if mine and theirs else None
        quantity = f"{SERVED} by {best.label} over this"
        rows.append(derived(system, quantity, "times", ratio, paper))
    return rows


def _backlog(run: Run | None) -> str:
    if run is None:
        return ""
    sent = run.config["workload"]["num_requests"]
    return f"{sent} requests at once; from a quarter of them to three quarters"


def draw_curves(axes: Axes, rows: Sequence[Row], systems: Sequence[System], top: float) -> None:
    """One panel: a curve a system, up to `top` s/token, and what it serves from a backlog."""
    for system in systems:
        curve = of(rows, system=system.label, quantity=LATENCY)
        known = [(r.x, r.ours) for r in curve if r.x is not None and r.ours is not None]
        axes.plot(
            [x for x, _ in known], [y for _, y in known], color=system.colour,
            marker=system.marker, markersize=3.5, linewidth=1.2, label=system.label,
        )  # fmt: skip
        for served in of(rows, system=system.label, quantity=SERVED):
            if served.ours is not None:
                axes.axvline(served.ours, color=system.colour, linewidth=0.9, linestyle=":")
    axes.set_ylim(0, top)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("requests/s (log scale)")
