"""Rows read off runs: what a number was drawn from, and why one is missing."""

from __future__ import annotations

from bench.paper.figure import Published, Row
from bench.paper.lengths import drawn_from
from bench.report.results import Run

MISSING = "not run"


def row(
    run: Run | None,
    ours: float | None,
    *,
    panel: str,
    system: str,
    quantity: str,
    unit: str,
    x: float | None = None,
    x_is: str = "",
    paper: Published | None = None,
    also: str = "",
) -> Row:
    """A row for one number of a run. Its note says how the run's time came about, what else the
    figure says of it (`also`), and why a run did not complete."""
    return Row(
        panel=panel,
        system=system,
        quantity=quantity,
        unit=unit,
        ours=ours,
        x=x,
        x_is=x_is,
        paper=paper,
        lengths=drawn_from(run.config) if run else "",
        note="; ".join(filter(None, (*_how(run), also))),
    )


def _how(run: Run | None) -> list[str]:
    if run is None:
        return [MISSING]
    said = [f"{run.device} GPU, {run.time} time"]
    return said if run.completed else [*said, f"{run.status}: {run.cause}"]


def percent(run: Run | None, *keys: str) -> float | None:
    """A share of a run's summary in percent."""
    share = run.number(*keys) if run else None
    return None if share is None else 100 * share


def number(run: Run | None, *keys: str) -> float | None:
    """A number of a run's summary."""
    return run.number(*keys) if run else None
