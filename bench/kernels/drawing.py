"""Bandwidth against block size, a panel for each batch and context length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from bench.kernels.registry import PROVIDERS, Provider
from bench.kernels.rows import Device, Row
from bench.report.drawing import blank, legend_below
from bench.report.palette import LIGHT
from bench.report.sheet import SCREEN

PANEL_IN = (2.6, 2.0)
LEAST_WIDTH_IN = 7.0
COPY_PERCENT = 100


def draw(rows: Sequence[Row], device: Device, title: str) -> Figure:
    """Batches downwards, contexts to the right. What is not paged is a dashed line; a copy's
    bandwidth, the measure, is the dotted one at 100 %."""
    batches = sorted({row.shape.batch for row in rows})
    contexts = sorted({row.shape.context for row in rows})
    size = max(LEAST_WIDTH_IN, PANEL_IN[0] * len(contexts)), PANEL_IN[1] * len(batches) + 1.2
    figure = Figure(figsize=size, dpi=SCREEN.dpi, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(batches), len(contexts), sharex=True, sharey=True, squeeze=False)
    shapes = [(batch, context) for batch in batches for context in contexts]
    for axes, (batch, context) in zip(panels.flat, shapes, strict=True):
        here = [r for r in rows if (r.shape.batch, r.shape.context) == (batch, context)]
        _panel(axes, here, device)
        axes.set_title(f"batch {batch}, {context:,} tokens")
    _scale(panels[0, 0], rows, device)
    for axes in panels[-1]:
        axes.set_xlabel("block size, tokens (log scale)")
    for axes in panels[:, 0]:
        axes.set_ylabel("KV read, % of a copy")
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=10)
    entries = {
        name: handle
        for axes in panels.flat
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if entries:
        legend_below(figure, list(entries.values()), list(entries))
    return figure


def _scale(axes: Axes, rows: Sequence[Row], device: Device) -> None:
    """The axes that all panels share."""
    sizes = sorted({row.block_size for row in rows if row.block_size is not None})
    shares = [share for row in rows if (share := row.copy_share(device)) is not None]
    axes.set_ylim(0, 100 * max([1.05, *(1.05 * share for share in shares)]))
    axes.set_xscale("log", base=2)
    if sizes:
        axes.set_xlim(sizes[0] / 1.3, sizes[-1] * 1.3)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())


def _panel(axes: Axes, rows: Sequence[Row], device: Device) -> None:
    axes.axhline(COPY_PERCENT, color=LIGHT.muted, linewidth=0.9, linestyle=":")
    timed = [row for row in rows if row.us is not None]
    if not timed:
        blank(axes, "not timed", LIGHT)
    for provider in PROVIDERS:
        mine = [row for row in timed if row.provider == provider.name]
        if mine and provider.paged:
            _curve(axes, mine, provider, device)
        elif mine:
            (percent,) = _percents(mine, device)
            axes.axhline(percent, color=provider.colour, linewidth=1.4, linestyle="--",
                         label=f"{provider.name}, contiguous")  # fmt: skip


def _curve(axes: Axes, rows: Sequence[Row], provider: Provider, device: Device) -> None:
    """Percentages of the medians, with whiskers from the 80th to the 20th percentile of time."""
    sizes = [row.block_size or 0 for row in rows]
    axes.plot(sizes, _percents(rows, device), color=provider.colour, marker=provider.marker,
              markersize=4, linewidth=1.3, label=provider.name)  # fmt: skip
    for size, row in zip(sizes, rows, strict=True):
        if row.us_p20 and row.us_p80:
            slow, fast = (
                _percents([replace(row, us=us)], device)[0] for us in (row.us_p80, row.us_p20)
            )
            axes.vlines(size, slow, fast, color=provider.colour, linewidth=1.0)


def _percents(rows: Sequence[Row], device: Device) -> list[float]:
    return [100 * (row.copy_share(device) or 0.0) for row in rows]
