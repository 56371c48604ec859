"""A fit and its trace, as distribution functions."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.report.drawing import blank, legend_below, new_figure
from bench.report.palette import LIGHT
from bench.traffic.drawing import ecdf, tokens_axis
from bench.traffic.fit.result import Pair, Result
from bench.traffic.fit.target import FITTED

TRACE, GENERATED = "#5B6470", "#D55E00"
TITLES = {"prompt_tokens": "prompts, tokens", "output_tokens": "outputs, tokens",
          "gap_s": "gaps between arrivals, s"}  # fmt: skip
LEAST = {"gap_s": 1e-3}
"""A log axis has no 0: shorter gaps are drawn here."""


def draw_fit(result: Result) -> Figure:
    """A panel each for prompts, outputs and gaps, with the errors at p50, p90 and p99."""
    figure = new_figure(3.9)
    panels = figure.subplots(1, len(TITLES), sharey=True)
    for axes, (key, title) in zip(panels, TITLES.items(), strict=True):
        axes.set_title(title)
        axes.set_xlabel("log scale")
        if key in result.pairs:
            _panel(axes, result.pairs[key], LEAST.get(key, 1))
        else:
            blank(axes, "all requests arrive\nat one moment", LIGHT)
    panels[-1].set_xlabel(f"log scale; below {LEAST['gap_s']:g} s as {LEAST['gap_s']:g} s")
    panels[0].set_ylabel("at or below, %")
    count = len(result.pairs["prompt_tokens"].generated)
    figure.suptitle(f"{result.trace.name} and {count:,} generated requests", x=0.01, ha="left",
                    fontweight="bold", fontsize=10)  # fmt: skip
    legend_below(figure, *panels[0].get_legend_handles_labels())
    return figure


def _panel(axes: Axes, pair: Pair, least: float) -> None:
    ecdf(axes, np.maximum(pair.recorded, least), TRACE, "trace")
    ecdf(axes, np.maximum(pair.generated, least), GENERATED, "generated", "--")
    tokens_axis(axes)
    lines = []
    for name, values in pair.percentiles().items():
        at = max(values["trace"] or 0.0, least)
        axes.plot(at, 100 * FITTED[name], "o", color=TRACE, markersize=4)
        error = values["error"]
        said = "undefined" if error is None else f"{100 * error:+.1f} %"
        lines.append(f"{name} {said}")
    axes.text(0.97, 0.05, "\n".join(lines), transform=axes.transAxes, va="bottom", ha="right",
              fontsize=8)  # fmt: skip
