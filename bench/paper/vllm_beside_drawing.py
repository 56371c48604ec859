"""Draws an unmodified vLLM beside fragbench's engine: blocks in use over time, how far they are
apart, and a table of what both counted."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from bench.paper.drawing import column_figure, of
from bench.paper.figure import Row
from bench.paper.over_time import Curve
from bench.paper.vllm_beside_cases import (
    APART_SHARE,
    BOTH,
    CASES,
    COLOURS,
    FRAGBENCH,
    SHOWN,
    VLLM,
)
from bench.report.palette import LIGHT
from bench.report.quantities import format_number

WIDTHS = {FRAGBENCH: 3.2, VLLM: 0.8}
"""Of lines, so that one shows behind the other where they are the same."""
LEAST_SPAN_BLOCKS = 10
"""Of a difference's axis."""


def draw(rows: Sequence[Row]) -> Drawing:
    """A column a case, and the table below."""
    figure = column_figure(5.2)
    (above,), (below,) = figure.subfigures(2, 1, squeeze=False, height_ratios=(3, 2))
    grid = above.subplots(2, len(CASES), height_ratios=(2, 1), sharex="col", squeeze=False)
    for column, case in enumerate(CASES):
        mine = of(rows, panel=case.panel)
        _curves(grid[0][column], mine)
        grid[0][column].set_title(f"{case.label},\n{case.backend}", fontsize=8)
        _apart(grid[1][column], mine)
    grid[0][0].set_ylabel("KV blocks in use", fontsize=8)
    grid[1][0].set_ylabel(f"{VLLM} -\n{FRAGBENCH}", fontsize=8)
    handles, names = grid[0][0].get_legend_handles_labels()
    above.legend(handles, names, loc="outside upper center", ncols=2, fontsize=8)
    _table(below.subplots(), rows)
    below.suptitle(f"Of each pair {FRAGBENCH}'s is above, {VLLM}'s below.", fontsize=8)
    return figure


def _curves(axes: Axes, rows: Sequence[Row]) -> None:
    for each in rows:
        if isinstance(each, Curve) and each.system != BOTH:
            axes.plot(
                [seconds / 60 for seconds in each.times_s], each.values, label=each.system,
                color=COLOURS[each.system], linewidth=WIDTHS[each.system], drawstyle="steps-pre",
            )  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=7)


def _apart(axes: Axes, rows: Sequence[Row]) -> None:
    curves = [row for row in rows if isinstance(row, Curve) and row.system == BOTH]
    for each in curves:
        minutes = [seconds / 60 for seconds in each.times_s]
        axes.plot(minutes, each.values, color=LIGHT.ink, linewidth=0.8)
    span = max(LEAST_SPAN_BLOCKS, *(abs(value) for each in curves for value in each.values), 0)
    axes.set_ylim(-1.1 * span, 1.1 * span)
    axes.set_xlabel("minutes (modelled)", fontsize=7.5)
    axes.tick_params(labelsize=7)


def _table(axes: Axes, rows: Sequence[Row]) -> None:
    """Ours and vLLM's of each quantity that has a column."""
    columns = [shown for shown in SHOWN if shown.column]
    heads = ["", *(shown.column for shown in columns), "blocks in use,\nat most apart"]
    lines = []
    for case in CASES:
        mine = of(rows, panel=case.panel)
        lines.append([
            f"{case.label},\n{case.backend}",
            *("\n".join(_said(of(mine, system=engine, quantity=shown.quantity))
                        for engine in (FRAGBENCH, VLLM)) for shown in columns),
            f"{_said(of(mine, quantity=APART_SHARE))} %",
        ])  # fmt: skip
    axes.set_axis_off()
    table = axes.table(lines, colLabels=heads, loc="center", cellLoc="right", edges="horizontal")
    table.auto_set_font_size(False)
    table.set_fontsize(7)
    table.auto_set_column_width(list(range(len(heads))))
    table.scale(1, 2.1)
    for cell in table.get_celld().values():
        cell.set_edgecolor(LIGHT.grid)


def _said(rows: Sequence[Row]) -> str:
    value = rows[0].ours if rows else None
    if value is None:
        return "-"
    return format_number(value, 0 if value.is_integer() else None)
