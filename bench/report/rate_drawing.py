"""The figure of a sweep of rates: what is served within the objective, and when it gives in."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from bench.report import quantities as q
from bench.report.drawing import Picture, legend_below, mark, new_panels, render
from bench.report.groups import times, wrapped
from bench.report.palette import LIGHT, backend_colour
from bench.report.rates import Line, Sweep
from bench.report.sheet import sheet

MARKERS = "osD^vPX"


def rates_picture(sweep: Sweep, slug: str) -> Picture:
    """Goodput and throughput against the rate offered, and TTFT's p99 against it."""
    slo = sweep.lines[0].slo
    knees = "; ".join(f"{line.label} {line.knee_said()}" for line in sweep.lines)
    kind = times([line.run for line in sweep.lines])
    return render(
        f"rates-{slug}",
        f"{sweep.workload}: what is served at each rate offered ({kind} time). Goodput counts "
        f"requests that met the objective: {slo.limits_said()}. A ring is the highest rate up to "
        f"which {100 * slo.attained:g} % of those sent did; the dashed level is the objective's "
        "TTFT.",
        f"Lines against the rate, one a backend; highest rates held: {knees}",
        lambda: _draw(sweep),
    )


def _draw(sweep: Sweep) -> Figure:
    figure, (served, latency) = new_panels(2, sheet().curves_height_in + 0.5)
    markers = _markers(sweep)
    for line, marker in zip(sweep.lines, markers, strict=True):
        _draw_served(served, line, marker)
        _draw_latency(latency, line, marker)
    top = max(point.offered for line in sweep.lines for point in line.points)
    served.plot([0, top], [0, top], color=LIGHT.muted, linewidth=1, linestyle=":")
    served.set_xlim(0, top * 1.05)
    served.set_ylim(0, top * 1.05)
    kind = times([line.run for line in sweep.lines])
    served.set_ylabel(f"requests/s ({kind})")
    latency.set_ylabel(f"TTFT p99, s ({kind}), log scale")
    latency.set_yscale("log")
    latency.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    latency.yaxis.set_minor_formatter(NullFormatter())
    latency.axhline(sweep.lines[0].slo.ttft_s, color=LIGHT.muted, linewidth=1, linestyle="--")
    for axes in (served, latency):
        axes.set_xlabel("rate offered, requests/s")
    handles = [
        Line2D([], [], color=backend_colour(line.run.backend), linewidth=2, marker=marker,
               markersize=4)
        for line, marker in zip(sweep.lines, markers, strict=True)
    ]  # fmt: skip
    for handle, line in zip(handles, sweep.lines, strict=True):
        mark((handle,), line.run.backend)
    rest = [
        Line2D([], [], color=LIGHT.muted, linewidth=2),
        Line2D([], [], color=LIGHT.muted, linewidth=1.2, linestyle="--"),
        Line2D([], [], color=LIGHT.muted, linewidth=1, linestyle=":"),
    ]
    names = [wrapped(line.label, 30) for line in sweep.lines]
    legend_below(figure, [*handles, *rest], [*names, "goodput", "completed", "as offered"])
    return figure


def _markers(sweep: Sweep) -> list[str]:
    """One a line, unlike those of its neighbours: colours alone are not told apart by everyone, and
    lines of one backend share theirs."""
    return [MARKERS[number % len(MARKERS)] for number in range(len(sweep.lines))]


def _draw_served(axes: Axes, line: Line, marker: str) -> None:
    colour = backend_colour(line.run.backend)
    offered = [point.offered for point in line.points]
    completed = [q.REQUESTS_PER_S.read(point.run) or 0.0 for point in line.points]
    goodput = [point.goodput for point in line.points]
    lines = axes.plot(offered, goodput, f"{marker}-", color=colour, linewidth=2, markersize=4)
    lines += axes.plot(offered, completed, "--", color=colour, linewidth=1.2, alpha=0.8)
    knee = next((point for point in line.points if point.offered == line.held), None)
    if knee is not None:
        lines += axes.plot(
            knee.offered, knee.goodput, "o", markersize=11, markerfacecolor="none",
            markeredgecolor=colour, markeredgewidth=1.6,
        )  # fmt: skip
    mark(lines, line.run.backend)


def _draw_latency(axes: Axes, line: Line, marker: str) -> None:
    known = [
        (point.offered, value)
        for point in line.points
        if (value := q.TTFT["p99"].read(point.run)) is not None
    ]
    if known:
        offered, p99 = zip(*known, strict=True)
        lines = axes.plot(
            offered, p99, f"{marker}-", color=backend_colour(line.run.backend), linewidth=2,
            markersize=4,
        )  # fmt: skip
        mark(lines, line.run.backend)
