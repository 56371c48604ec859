"""The figures of a load run, as a terminal shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.metrics.latency import QUANTILES

ROWS = {
    "ttft_s": "TTFT",
    "ttft_scheduled_s": "TTFT, scheduled",
    "tpot_s": "TPOT",
    "itl_s": "ITL",
    "e2e_s": "E2E",
    "lateness_s": "client's lateness",
}


def print_figures(summary: dict[str, Any], folder: Path, console: Console) -> None:
    """Counts, throughput and latencies in milliseconds; what makes them doubtful."""
    counts = ", ".join(f"{count:,} {name}" for name, count in summary["requests"].items() if count)
    console.print(f"Requests: {counts or 'none sent'}", highlight=False)
    rates = summary["throughput"]
    console.print(
        f"Throughput: {_number(rates['requests_per_s'])} requests/s, "
        f"{_number(rates['output_tokens_per_s'])} output tokens/s",
        highlight=False,
    )
    console.print(_latencies(summary))
    for name, count in summary["window"]["left_out"].items():
        if count:
            console.print(f"Left out of latencies: {count:,} ({name.replace('_', ' ')})")
    for sentence in summary["warnings"]:
        console.print(f"warning: {sentence}", style="yellow", markup=False)
    if summary["status"] != "completed":
        console.print(f"{summary['status']}: {summary['cause']}", style="yellow", markup=False)
    for cause, count in summary["clients"]["causes"].items():
        console.print(f"{count:,} x {cause}", style="yellow", markup=False, highlight=False)
    console.print(f"Results: {folder}", markup=False, highlight=False, soft_wrap=True)


def _latencies(summary: dict[str, Any]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("ms", "mean", *QUANTILES, "count"):
        table.add_column(name, justify="left" if name == "ms" else "right")
    for key, name in ROWS.items():
        values = summary[key]
        cells = [_number(values[column], 1000) for column in ("mean", *QUANTILES)]
        table.add_row(name, *cells, f"{values['count']:,}")
    return table


def _number(value: float | None, factor: float = 1) -> str:
    return "-" if value is None else f"{value * factor:,.2f}"
