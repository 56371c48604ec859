"""How latency is distributed over requests and tokens: a curve a run, of every value it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter
from numpy.typing import NDArray

from bench.report import quantities as q
from bench.report.bars import in_words
from bench.report.drawing import Picture, blank, legend_below, mark, new_panels, render
from bench.report.groups import labels, times, wrapped
from bench.report.palette import LIGHT, backend_colour
from bench.report.results import Run
from bench.report.sheet import sheet

POINTS = 400
"""Of a curve; a figure shows no more."""
Dash = Literal["-", "--", ":", "-."]
DASHES: tuple[Dash, ...] = ("-", "--", ":", "-.")
"""Of runs that share a backend, and so its colour."""
TURN = 7.0
"""Line widths that each of several curves in one place is drawn for at a time."""
ALIKE = 0.01
"""Curves whose values are this close everywhere are in one place: a pixel's width."""

Values = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Sorted values and how often each occurred, both of one shape."""


def latency_picture(workload: str, slug: str, group: Sequence[Run]) -> Picture:
    """TTFT of completed requests and the gaps between their tokens (ITL), as ECDFs."""
    found = [(run, ttft_s(run), gaps_s(run)) for run in group]
    repeats = " of all repeats" if any(run.repeats for run in group) else ""
    return render(
        f"latency-{slug}",
        f"{workload}: the share of requests{repeats} that had their first token within a time, and "
        f"of gaps between tokens that were no longer ({times(group)} time; gaps to within 0.5 %).",
        "Empirical distributions, a curve a run; " + in_words(group, q.TTFT["p50"]),
        partial(_draw, found),
    )


def ttft_s(run: Run) -> Values:
    """TTFT of each completed request."""
    rows = run.requests.read(("status", "sent_s", "first_token_s"), run.notes)
    done = rows[rows["status"] == "completed"]
    values = np.sort((done["first_token_s"] - done["sent_s"]).dropna().to_numpy(dtype=float))
    return values, np.ones(len(values))


def gaps_s(run: Run) -> Values:
    """Gaps between tokens, in bins 1 % wide; of repeats all together."""
    rows = run.inter_token.read(("gap_s", "count"), run.notes).dropna()
    total = rows.groupby("gap_s")["count"].sum()
    return total.index.to_numpy(dtype=float), total.to_numpy(dtype=float)


def ecdf(values: Values) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """At most `POINTS` values and the share of all that is at or below each, both of one shape;
    the smallest and the largest are among them."""
    sizes, counts = values
    below = np.cumsum(counts) / counts.sum()
    if len(sizes) <= POINTS:
        return sizes, below
    picked = np.searchsorted(below, np.linspace(below[0], 1, POINTS)).clip(0, len(sizes) - 1)
    return sizes[np.unique(picked)], below[np.unique(picked)]


def _draw(found: Sequence[tuple[Run, Values, Values]]) -> Figure:
    height_in = sheet().curves_height_in + 0.2 * (len(found) // 4)
    figure, (first, second) = new_panels(2, height_in, sharey=True)
    kind = times([run for run, *_ in found])
    _draw_curves(first, found, lambda each: each[1], 1.0)
    first.set_xlabel(f"TTFT, s ({kind}), log scale")
    first.set_ylabel("share of requests")
    _draw_curves(second, found, lambda each: each[2], 1000.0)
    second.set_xlabel(f"inter-token latency, ms ({kind}), log scale")
    second.set_ylabel("share of gaps")
    second.tick_params(axis="y", labelleft=True)
    runs = [run for run, *_ in found]
    handles = [
        Line2D([], [], color=backend_colour(run.backend), linestyle=dash, linewidth=2)
        for run, dash in zip(runs, _dashes(runs), strict=True)
    ]
    mark_all(handles, runs)
    legend_below(figure, handles, [wrapped(label, 30) for label in labels(runs)])
    return figure


def mark_all(artists: Sequence[Line2D], runs: Sequence[Run]) -> None:
    """Marks an artist a run."""
    for artist, run in zip(artists, runs, strict=True):
        mark((artist,), run.backend)


def _draw_curves(
    axes: Axes,
    found: Sequence[tuple[Run, Values, Values]],
    pick: Callable[[tuple[Run, Values, Values]], Values],
    scale: float,
) -> None:
    runs = [run for run, *_ in found]
    each = zip(runs, _dashes(runs), map(pick, found), strict=True)
    curves = [(run, dash, values) for run, dash, values in each if len(values[0])]
    turns = turns_of([values for *_, values in curves])
    for (run, dash, values), turn in zip(curves, turns, strict=True):
        sizes, below = ecdf(values)
        lines = axes.step(
            np.maximum(sizes, 1e-6) * scale, below, where="post", linestyle=turn or dash,
            linewidth=1.8, color=backend_colour(run.backend),
        )  # fmt: skip
        mark(lines, run.backend)
    axes.set_ylim(0, 1.01)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 0.9, 1], ["0 %", "25 %", "50 %", "75 %", "90 %", "100 %"])
    if not curves:
        blank(axes, "not recorded", LIGHT)
        return
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def turns_of(curves: Sequence[Values]) -> list[tuple[float, tuple[float, float]] | None]:
    """How each of several distributions is dashed so that those in one place show in turns, as
    matplotlib has it (an offset, and what is on and off); None for one that is alone."""
    shares = np.linspace(0, 1, 101)
    sizes = [np.interp(shares, below, values) for values, below in map(ecdf, curves)]
    places = [
        [n for n, other in enumerate(sizes) if np.allclose(own, other, rtol=ALIKE, atol=1e-6)]
        for own in sizes
    ]
    return [
        (TURN * place.index(n), (TURN, TURN * (len(place) - 1))) if len(place) > 1 else None
        for n, place in enumerate(places)
    ]


def _dashes(runs: Sequence[Run]) -> list[Dash]:
    """A line style for each, unlike those of others of its backend as far as styles go."""
    seen: dict[str, int] = {}
    styles: list[Dash] = []
    for run in runs:
        number = seen[run.backend] = seen.get(run.backend, -1) + 1
        styles.append(DASHES[number % len(DASHES)])
    return styles
