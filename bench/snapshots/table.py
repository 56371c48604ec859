"""What the terminal shows of replays."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from bench.snapshots.outcome import GIB, Outcome

HEADINGS = ("peak reserved, GiB", "peak allocated, GiB", "retries", "OOMs", "driver calls")


def terminal_table(outcomes: Sequence[Outcome], title: str) -> Table:
    """One line a setting. Retries: the cache was emptied for want of memory. OOMs: allocations that
    were refused, those of before the history too."""
    table = Table(title=escape(title), title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("alloc_conf", overflow="fold")
    for heading in HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for each in outcomes:
        table.add_row(
            escape(each.name),
            f"{each.peak_reserved_bytes / GIB:,.2f}",
            f"{each.peak_allocated_bytes / GIB:,.2f}",
            f"{each.num_alloc_retries:,}",
            f"{each.failures:,}",
            f"{sum(each.driver_calls.values()):,}",
        )
    return table
