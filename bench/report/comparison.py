"""The comparison of runs as a data frame (`comparison.csv`) and as a table in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.report import quantities as q
from bench.report.groups import by_workload, common, labels, times, wrapped
from bench.report.quantities import Quantity
from bench.report.repeats import gathered
from bench.report.results import Run
from bench.report.sensitivity import split

LABEL_COLUMNS = ("name", "backend", "engine", "workload", "model", "gpu", "device", "time",
                 "status", "cause")  # fmt: skip

TERMINAL_COLUMNS: tuple[tuple[str, Quantity], ...] = (
    ("req/s", q.REQUESTS_PER_S),
    ("TTFT\np50 s", q.TTFT["p50"]),
    ("TTFT\np99 s", q.TTFT["p99"]),
    ("TPOT\np50 ms", q.TPOT["p50"]),
    ("mean\nbatch", q.BATCH_MEAN),
    ("mem.\nbound\n%", q.BOUND_TIME),
    ("token\nstates\n%", q.SHARES["token_states"]),
    ("reser-\nvation\n%", q.SHARES["reservation"]),
    ("inter-\nnal\n%", q.SHARES["internal"]),
    ("round-\ning\n%", q.SHARES["rounding"]),
    ("exter-\nnal\n%", q.SHARES["external"]),
    ("pre-\nempt.", q.PREEMPTIONS),
    ("OOMs", q.OOMS),
)
SHARING_COLUMNS = (
    ("cached\n%", q.SHARES["cached"]),
    ("hits\n%", q.HIT_RATE),
    ("shared\n%", q.SHARING_SAVED),
)
"""Shown where one run of the table has some."""
LEAST_NEEDED = (
    q.SHARING_SAVED, q.SHARES["rounding"], q.SHARES["internal"], q.SHARES["reservation"],
    q.SHARES["external"], q.SHARES["cached"], q.BOUND_TIME, q.BATCH_MEAN,
)  # fmt: skip
"""Left out first where a terminal is too narrow for all columns."""


def comparison_table(runs: Iterable[Run]) -> pd.DataFrame:
    """One row a run, ordered by workload and backend; units are in the columns' names, ratios run
    from 0 to 1, and what is undefined is missing."""
    ordered = [run for group in by_workload(runs).values() for run in group]
    table = {name: [getattr(run, name) for run in ordered] for name in LABEL_COLUMNS}
    frame = pd.DataFrame(table, columns=list(LABEL_COLUMNS))
    for quantity in q.ALL:
        values = [quantity.read(run) for run in ordered]
        column = pd.Series(values, dtype="float64")
        whole = quantity.digits == 0 or quantity is q.PEAK_RESERVED
        frame[quantity.column] = column.round().astype("Int64") if whole else column
    frame["folder"] = [run.folder for run in ordered]
    return frame


def print_comparison(runs: Sequence[Run], console: Console) -> None:
    """Prints one table a workload, of means over repeats, and below them the runs that did not
    complete, with causes."""
    rows, _ = split(gathered(runs))
    for workload, group in by_workload(rows).items():
        console.print(_fitting_table(workload, group, console))
    console.print(
        "Shares are of the KV budget B, averaged over memory-bound time; '-' is undefined.",
        style="dim",
    )
    for run in runs:
        if not run.completed:
            console.print(f"{run.status}: {run.name}: {run.cause}", style="yellow", markup=False)
        elif run.request_counts.get("completed") == 0:
            causes = "; ".join(run.request_causes()) or "no request ended"
            console.print(
                f"no request was completed: {run.name}: {causes}", style="yellow", markup=False
            )


def _fitting_table(workload: str, group: Sequence[Run], console: Console) -> Table:
    """As many columns as the terminal has room for, and below them how many it has not."""
    sharing = [each for each in SHARING_COLUMNS if any(each[1].read(run) for run in group)]
    columns = [*TERMINAL_COLUMNS, *sharing]
    unbound = console.options.update(width=10 * console.width)
    droppable = [each for each in LEAST_NEEDED if each in [quantity for _, quantity in columns]]
    for left_out in range(len(droppable) + 1):
        kept = [each for each in columns if each[1] not in droppable[:left_out]]
        table = _terminal_table(workload, group, kept)
        if left_out:
            table.caption = f"Columns left out for want of width: {left_out}"
        if console.measure(table, options=unbound).maximum <= console.width:
            break
    return table


def _terminal_table(
    workload: str, group: Sequence[Run], columns: Sequence[tuple[str, Quantity]]
) -> Table:
    title = f"{workload}: {', '.join(_setting(group))}"
    table = Table(title=escape(title), title_justify="left", box=None, padding=(0, 1, 0, 0),
                  caption_justify="left")  # fmt: skip
    table.add_column("backend", min_width=12, overflow="fold")
    table.add_column("completed\n/ sent", justify="right", no_wrap=True)
    for heading, _ in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for run, label in zip(group, labels(group), strict=True):
        mark = "" if run.completed else f" ({run.status})"
        cells = [quantity.shown(run) or "-" for _, quantity in columns]
        table.add_row(escape(wrapped(label + mark, 13)), _completed_of_sent(run), *cells)
    return table


def _completed_of_sent(run: Run) -> str:
    """`completed/sent`, with `-` for what is not known."""
    return "/".join(str(run.request_counts.get(key, "-")) for key in ("completed", "sent"))


def _setting(group: Sequence[Run]) -> list[str]:
    """The models, GPUs and devices of one table, and how its times came about."""
    facts = [common(getattr(run, key) for run in group) for key in ("model", "gpu", "device")]
    return [*facts, f"{times(group)} times"]
