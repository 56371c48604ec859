"""What the terminal shows of the rows."""

from __future__ import annotations

from collections.abc import Iterable

from rich.markup import escape
from rich.table import Table

from bench.kernels.rows import Device, Row
from bench.report.quantities import format_number

HEADINGS = ("batch", "context", "kernel", "block", "KV bytes", "us", "20-80 %", "GB/s", "% of copy")


def terminal_table(rows: Iterable[Row], device: Device, title: str) -> Table:
    """One line a row. GB/s are K and V read, and the last column is their share of a copy's."""
    table = Table(title=escape(title), title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in HEADINGS:
        justify = "left" if heading == "kernel" else "right"
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("note", overflow="fold")
    before = None
    for row in rows:
        if before not in (None, row.shape):
            table.add_section()
        before = row.shape
        table.add_row(*_cells(row, device))
    return table


def _cells(row: Row, device: Device) -> list[str]:
    shape, share = row.shape, row.copy_share(device)
    block = "-" if row.block_size is None else str(row.block_size)
    spread = "-"
    if row.us_p20 is not None and row.us_p80 is not None:
        spread = f"{_us(row.us_p20)}-{_us(row.us_p80)}"
    return [
        str(shape.batch), f"{shape.context:,}", escape(row.provider), block,
        f"{shape.kv_bytes:,}", _us(row.us), spread,
        "-" if row.gb_s is None else format_number(row.gb_s),
        "-" if share is None else f"{100 * share:.1f}",
        escape(row.note if row.status == "timed" else f"{row.status}: {row.note}"),
    ]  # fmt: skip


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"
