"""The pictures of a preview: how long requests are, and when they come."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from bench.report.drawing import blank, legend_below, new_figure
from bench.report.palette import LIGHT
from bench.traffic.rates import Windows, windows
from bench.traffic.sample import Floats, Ints, Sample

PROMPT, OUTPUT, TOTAL = "#0072B2", "#D55E00", "#1D2129"
WIDTHS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400)
MOST_WINDOWS = 240
LEAST_WINDOWS = 3
SMOOTHED_OVER = 8
"""Windows on either side."""


def draw_lengths(sample: Sample, name: str, max_model_len: int) -> Figure:
    """Shares of requests of at most so many tokens."""
    figure = new_figure(3.6)
    axes = figure.subplots()
    for label, column, colour in (
        ("prompt", sample.prompt_tokens, PROMPT),
        ("output", sample.output_tokens, OUTPUT),
        ("prompt + output", sample.total_tokens, TOTAL),
    ):
        ecdf(axes, column, colour, label)
    axes.axvline(max_model_len, color=LIGHT.muted, linewidth=1.2, linestyle="--",
                 label=f"max_model_len, {max_model_len:,}")  # fmt: skip
    tokens_axis(axes)
    axes.set_xlabel("tokens (log scale)")
    axes.set_ylabel("requests of at most so many, %")
    axes.set_title(f"{name}: lengths of {len(sample.turns):,} requests")
    legend_below(figure, *axes.get_legend_handles_labels())
    return figure


def draw_arrivals(sample: Sample, sent_s: Floats, name: str) -> Figure:
    """Requests and tokens a second over time."""
    figure = new_figure(5.0)
    above, below = figure.subplots(2, 1, sharex=True)
    width_s = _width_s(float(sent_s.max()))
    above.set_title(f"{name}: requests/s, in windows of {width_s:,} s")
    below.set_title("tokens/s of the requests sent then")
    below.set_xlabel("time, s")
    answers = sample.output_tokens * sample.branches
    _over_time(above, windows(sent_s, width_s), TOTAL, "requests")
    for label, tokens, colour in (
        ("prompt tokens", sample.prompt_tokens, PROMPT),
        ("output tokens", answers, OUTPUT),
    ):
        _over_time(below, windows(sent_s, width_s, tokens.astype(float)), colour, label)
    handles = {
        label: handle
        for axes in (above, below)
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if handles:
        legend_below(figure, list(handles.values()), list(handles))
    return figure


def ecdf(axes: Axes, lengths: Ints | Floats, colour: str, label: str, style: str = "-") -> None:
    """Percent of the values at or below each."""
    values, counts = np.unique(lengths, return_counts=True)
    percent = 100 * np.cumsum(counts) / len(lengths)
    axes.step([values[0], *values], [0, *percent], where="post", color=colour, linewidth=1.6,
              linestyle=style, label=label)  # fmt: skip


def tokens_axis(axes: Axes) -> None:
    """A log axis of whole numbers, and one of percent."""
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(0, 101)


def _over_time(axes: Axes, counted: Windows, colour: str, label: str) -> None:
    """Each window as a step, and the smoothed line."""
    rates = counted.sums / counted.width_s
    if len(rates) < LEAST_WINDOWS:
        blank(axes, "too short a time to draw", LIGHT)
        return
    edges = np.arange(len(rates) + 1) * counted.width_s
    axes.stairs(rates, edges, fill=True, color=colour, alpha=0.25)
    middles = edges[:-1] + counted.width_s / 2
    axes.plot(middles, _smoothed(rates), color=colour, linewidth=1.8, label=f"{label}, smoothed")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.set_xlim(0, edges[-1])
    axes.set_ylim(0, None)


def _smoothed(rates: Floats) -> Floats:
    """A mean over windows near each, weighed by a bell; less of it at the ends."""
    reach = min(SMOOTHED_OVER, (len(rates) - 1) // 2)
    bell = np.exp(-0.5 * (np.arange(-reach, reach + 1) / max(reach / 2, 1)) ** 2)
    weights = np.convolve(np.ones(len(rates)), bell, mode="same")
    smoothed: Floats = np.convolve(rates, bell, mode="same") / weights
    return smoothed


def _width_s(last_s: float) -> int:
    return next((width for width in WIDTHS_S if last_s / width <= MOST_WINDOWS), WIDTHS_S[-1])
