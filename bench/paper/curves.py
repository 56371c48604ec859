"""Latency against request rate: the rate that a system sustains, and a panel of curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from bench.paper.drawing import of
from bench.paper.figure import Published, Row
from bench.paper.reading import number, row
from bench.paper.systems import System
from bench.report.results import Run

LATENCY, UNIT = "mean normalized latency", "s/token"
BOUND_S = 0.2
"""Normalized latency up to which a rate counts as sustained: the paper's curves have turned up
there, and those of an unloaded system lie far below."""
SUSTAINED = f"rate sustained at {BOUND_S:g} s/token"


def rates_rps(top: float, count: int, step: float) -> list[float]:
    """`count` rates, rising by one factor up to `top`, of three digits."""
    return [float(f"{top * step**below:.3g}") for below in range(count - 1, -1, -1)]


def latency_row(run: Run | None, panel: str, system: System, rate: float) -> Row:
    """The mean of E2E / output tokens of one run."""
    return row(
        run,
        number(run, "normalized_latency_s", "mean"),
        panel=panel,
        system=system.label,
        x=rate,
        x_is="requests/s",
        quantity=LATENCY,
        unit=UNIT,
    )


def sustained_rps(rows: Sequence[Row]) -> float | None:
    """Where the latency of rows by rising rate first passes BOUND_S, between two rates by the
    logarithms of rate and latency; None where it never does, or does from the first on."""
    known = [(r.x, r.ours) for r in rows if r.x is not None and r.ours is not None]
    for (x, y), (next_x, next_y) in pairwise(known):
        if y <= BOUND_S < next_y:
            share = math.log(BOUND_S / y) / math.log(next_y / y)
            return float(x * (next_x / x) ** share)
    return None


def sustained_rows(
    curves: Sequence[Row], best: System, others: dict[System, Published | None]
) -> list[Row]:
    """Of one panel's latencies: the rate that each system sustains, and how many times that of
    each other one the `best` sustains, beside what the paper says of it."""
    rates = {system: sustained_rps(of(curves, system=system.label)) for system in (best, *others)}
    rows = [_derived(curves, system, SUSTAINED, "requests/s", rate) for system, rate in
            rates.items()]  # fmt: skip
    for system, paper in others.items():
        mine, theirs = rates[best], rates[system]
        ratio = mine / theirs if mine and theirs else None
        quantity = f"sustained rate of {best.label} over this"
        rows.append(_derived(curves, system, quantity, "times", ratio, paper))
    return rows


def _derived(
    curves: Sequence[Row],
    system: System,
    quantity: str,
    unit: str,
    ours: float | None,
    paper: Published | None = None,
) -> Row:
    first = curves[0]
    return Row(
        panel=first.panel, system=system.label, quantity=quantity, unit=unit, ours=ours,
        paper=paper, lengths=first.lengths,
        note="from this panel's latencies" if ours else "no crossing between these rates",
    )  # fmt: skip


def draw_curves(axes: Axes, rows: Sequence[Row], systems: Sequence[System], top: float) -> None:
    """One panel: a curve a system, up to `top` s/token, and the bound."""
    for system in systems:
        curve = of(rows, system=system.label, quantity=LATENCY)
        known = [(r.x, r.ours) for r in curve if r.x is not None and r.ours is not None]
        axes.plot(
            [x for x, _ in known], [y for _, y in known], color=system.colour,
            marker=system.marker, markersize=3.5, linewidth=1.2, label=system.label,
        )  # fmt: skip
    axes.axhline(BOUND_S, color="#5B6470", linewidth=0.8, linestyle=":")
    axes.set_ylim(0, top)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("requests/s (log scale)")
