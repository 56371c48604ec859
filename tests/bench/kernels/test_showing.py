"""The table and the figure, from rows made by hand."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from bench.kernels.drawing import draw
from bench.kernels.rows import Device, Row, in_order
from bench.kernels.shape import Shape
from bench.kernels.table import terminal_table
from bench.report.drawing import png, style
from bench.report.palette import BACKEND_COLOURS, LIGHT

DEVICE = Device("NVIDIA H200", copy_gb_s=4000.0, floor_us=2.5)
SIZES = (8, 16, 32, 64, 128, 256)


def made_up() -> list[Row]:
    """Shares that rise with block size, batch and context; SDPA at one share; a gap."""
    rows = []
    for batch in (1, 8, 64):
        for context in (512, 4096, 32_768):
            shape = Shape(batch, context, 32, 8, 128, "bf16")
            most = min(0.95, 0.02 + shape.kv_bytes / (shape.kv_bytes + 2e7))
            for provider, factor in (("paged_decode", 1.0), ("flashinfer", 0.9), ("vLLM", 0.8)):
                for size in SIZES:
                    share = factor * most * (1 - 1 / size)
                    us = shape.kv_bytes / (share * DEVICE.copy_gb_s) / 1000
                    rows.append(Row(provider, shape, size, "timed", us, us * 0.96, us * 1.07))
            us = shape.kv_bytes / (most * DEVICE.copy_gb_s) / 1000
            rows.append(Row("SDPA", shape, None, "timed", us, us, us))
    gap = next(row for row in rows if row.provider == "vLLM" and row.block_size == 8)
    rows[rows.index(gap)] = Row("vLLM", gap.shape, 8, "left out", note="blocks of [16]")
    return in_order(rows)


def printed(rows: list[Row]) -> list[str]:
    console = Console(width=130, file=io.StringIO())
    console.print(terminal_table(rows, DEVICE, "Decode [attention]"))
    output: Any = console.file
    return [line.rstrip() for line in output.getvalue().splitlines()]


def test_the_table_has_a_line_for_each_row_with_its_units() -> None:
    rows = made_up()
    title, headings, *lines = [line for line in printed(rows) if line]
    assert title == "Decode [attention]"
    for heading in ("KV bytes", "us", "20-80 %", "GB/s", "% of copy"):
        assert heading in headings
    assert len(lines) == len(rows) == 3 * 3 * (3 * 6 + 1)
    assert lines[5].split()[:5] == ["1", "512", "paged_decode", "256", "2,097,152"]
    assert sum("left out: blocks of [16]" in line for line in lines) == 1


def test_a_row_of_the_table_by_hand() -> None:
    """2 MiB in 10 us are 209.7 GB/s, 5.2 % of 4,000."""
    shape = Shape(1, 512, 32, 8, 128, "bf16")
    line = printed([Row("SDPA", shape, None, "timed", 10.0, 9.5, 11.25)])[-1]
    assert line.split() == [
        "1", "512", "SDPA", "-", "2,097,152", "10.0", "9.5-11.2", "210", "5.2",
    ]  # fmt: skip


def test_the_figure_has_a_panel_for_each_batch_and_context() -> None:
    rows = made_up()
    with style(LIGHT):
        figure = draw(rows, DEVICE, "Decode attention\nNVIDIA H200")
        assert png(figure).startswith(b"\x89PNG")
    assert len(figure.axes) == 9
    (ours,) = [line for line in figure.axes[0].lines if line.get_label() == "paged_decode"]
    assert list(ours.get_xdata()) == list(SIZES)
    expected = [100 * (row.copy_share(DEVICE) or 0) for row in rows[:6]]
    assert list(ours.get_ydata()) == expected
    assert ours.get_color() == BACKEND_COLOURS["paged"]
    (theirs,) = [line for line in figure.axes[0].lines if line.get_label() == "vLLM"]
    assert list(theirs.get_xdata()) == list(SIZES[1:])
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["paged_decode", "SDPA, contiguous", "flashinfer", "vLLM"]


def test_what_was_not_timed_is_an_empty_panel() -> None:
    shape = Shape(1, 512, 32, 8, 128, "bf16")
    with style(LIGHT):
        figure = draw([Row("SDPA", shape, None, "failed", note="x")], DEVICE, "none")
        png(figure)
    assert [text.get_text() for text in figure.axes[0].texts] == ["not timed"]
    assert figure.legends == []
