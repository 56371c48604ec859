"""A figure's table: the CSV that is kept, and what the terminal shows of it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from bench.paper.figure import Row
from bench.report.quantities import format_number

COLUMNS = ("figure", "panel", "system", "x", "x_is", "quantity", "unit", "ours", "paper",
           "difference", "where", "lengths", "note")  # fmt: skip


def write_csv(path: Path, figure: str, rows: Sequence[Row], also: str) -> None:
    """One line a row; `also` (such as that runs were shortened) goes into every note. Numbers have
    six significant digits; what is undefined or not published is empty, never 0."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            paper, where = (str(row.paper), row.paper.where) if row.paper else ("", "")
            note = "; ".join(filter(None, (row.note, also)))
            writer.writerow(
                [figure, row.panel, row.system, _digits(row.x), row.x_is, row.quantity, row.unit,
                 _digits(row.ours), paper, _digits(row.difference), where, row.lengths, note]
            )  # fmt: skip


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def terminal_table(title: str, rows: Sequence[Row]) -> Table:
    """The rows that people compare: all but lengths and notes."""
    table = Table(title=escape(title), title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in ("panel", "system"):
        table.add_column(heading, overflow="fold")
    table.add_column("x", justify="right")
    table.add_column("quantity", overflow="fold")
    for heading in ("ours", "paper", "difference"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("unit", overflow="fold")
    for row in rows:
        difference = row.difference
        table.add_row(
            escape(row.panel), escape(row.system), "" if row.x is None else f"{row.x:g}",
            escape(row.quantity), "-" if row.ours is None else format_number(row.ours),
            str(row.paper or ""), "" if difference is None else f"{difference:+.3g}",
            escape(row.unit),
        )  # fmt: skip
    return table
