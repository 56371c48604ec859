"""Curves over a run's time for figures that show one, and the figures' plain colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes

from bench.paper.figure import Row
from bench.report.results import Run

GIB = 1 << 30
COLUMNS = ("time_s", "reserved_bytes", "allocated_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve(Row):
    """A quantity over time, which the CSV has as one number, `ours`; the curve is drawn."""

    times_s: tuple[float, ...]
    values: tuple[float, ...]


def timeline(run: Run | None) -> pd.DataFrame:
    """`time_s`, `reserved`, `allocated` and their difference, `gap`, in GiB: a row a sample, which
    stands for `for_s`, the time since the sample before; empty without a run that has any.

    Samples are taken where steps end. While nothing runs there are none, and what was given back
    before that shows in the next one.
    """
    if run is None:
        return pd.DataFrame(
            columns=["time_s", "for_s", "reserved", "allocated", "gap"], dtype=float
        )
    rows = run.timeline.read(COLUMNS, run.notes).dropna().astype(float)
    reserved, allocated = rows["reserved_bytes"] / GIB, rows["allocated_bytes"] / GIB
    return pd.DataFrame(
        {
            "time_s": rows["time_s"],
            "for_s": rows["time_s"].diff().fillna(rows["time_s"]),
            "reserved": reserved,
            "allocated": allocated,
            "gap": reserved - allocated,
        }
    )


def mean_over_time(samples: pd.DataFrame, column: str) -> float | None:
    """Of timelines' rows, weighted with the time that each stands for."""
    whole_s = samples["for_s"].sum()
    return float((samples[column] * samples["for_s"]).sum() / whole_s) if whole_s else None


def draw_curves(axes: Axes, rows: Sequence[Row], colours: dict[str, str]) -> None:
    """The curves among rows, in minutes, one a system, above 0."""
    for row in rows:
        if isinstance(row, Curve):
            axes.plot(
                [seconds / 60 for seconds in row.times_s], row.values, linewidth=1.1,
                color=colours[row.system], label=row.system, drawstyle="steps-pre",
            )  # fmt: skip
    axes.set_xlabel("minutes")
    axes.set_ylim(0, max(axes.get_ylim()[1], 1.05 * axes.dataLim.y1))
