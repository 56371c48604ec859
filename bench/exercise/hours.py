"""Exercise e: hours of variable traffic. Does it accumulate?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from bench.config import from_container
from bench.exercise.base import Number, Outcome, Own
from bench.exercise.gaps import Gap, draw_gap, run_gaps
from bench.exercise.wording import amount, counted, digits, listed
from bench.metrics.trend import Series, Trend, trend
from bench.paper.task import Point, Task
from bench.report.drawing import legend_below, new_figure

MIB = 1 << 20
TRAFFIC = (
    "model=llama3_8b", "gpu=a100_40gb", "workload=mixed", "workload.rate_rps=0.4",
    "workload/arrivals=diurnal", "workload.arrivals.period_s=3600", "sample_interval_s=10",
    "backend.reserve=grow", "backend.layout=sequence",
)  # fmt: skip
CASES = {
    "default": ("backend=contiguous",),
    "expandable": ("backend=contiguous_expandable",),
}
LABELS = {"default": "the allocator's default", "expandable": "expandable segments"}
COLOURS = {"default": "#D55E00", "expandable": "#0072B2"}


class Hours:
    """Buffers that grow token by token, for hours."""

    name = "e"
    title = "hours of variable traffic: does it accumulate?"
    own: Mapping[str, Number] = {
        "hours": Number(2, 0.05, 1000, "hours", "of traffic", fraction=True)
    }
    takes = None
    varied = ("backend", "workload.num_requests", "workload.duration_s", "stop_after_s")

    def run(self, task: Task, own: Own) -> Outcome:
        lasts = f"workload.duration_s={own['hours'] * 3600:.0f}"
        gaps = run_gaps(
            task, [Point(name, (*TRAFFIC, lasts, *case)) for name, case in CASES.items()]
        )
        trends = {name: _trend(gap) for name, gap in gaps.items()}
        numbers = {
            name: gap.numbers() | {"trend": _plain(trends[name])} for name, gap in gaps.items()
        }
        return Outcome(finding(gaps, trends), {"runs": numbers}, lambda: _draw(gaps))


def _trend(gap: Gap) -> Trend | None:
    config = from_container(dict(gap.run.config))
    series = Series(gap.time_s, gap.reserved_bytes, gap.allocated_bytes)
    return trend([series], config.gpu.usable_bytes, config.seed)


def _plain(found: Trend | None) -> dict[str, Any] | None:
    return None if found is None else found.plain()


def finding(gaps: Mapping[str, Gap], trends: Mapping[str, Trend | None]) -> tuple[str, str]:
    """Whether it grows, then how far it went."""
    verdicts = [f"{_verdict(trends[name])} with {LABELS[name]}" for name in gaps]
    ways = [
        f"{amount(gap.gap_bytes[len(gap.gap_bytes) // 10])} after a tenth of the time, "
        f"{amount(gap.gap_bytes[-1])} at the end and {amount(gap.gap_bytes.max())} at most, with "
        f"{LABELS[name]} (segments went back {counted(gap.retries, 'time')}, in retries)"
        for name, gap in gaps.items()
    ]
    hours = next(iter(gaps.values())).time_s[-1] / 3600
    return (
        f"Over {digits(hours)} hours reserved - allocated {listed(verdicts)}.",
        f"It was {listed(ways)}.",
    )


def _verdict(found: Trend | None) -> str:
    if found is None:
        return "had too few samples for a trend"
    interval = (
        f"{found.slope_mib_per_h:+,.0f} MiB an hour, 95 % interval {found.low_mib_per_h:+,.0f} to "
        f"{found.high_mib_per_h:+,.0f}"
    )
    return f"{SAID[found.verdict]} ({interval})"


SAID = {
    "grows": "grew",
    "no growth": "did not grow",
    "not settled": "may or may not have grown",
}


def _draw(gaps: Mapping[str, Gap]) -> Figure:
    figure = new_figure(3.0)
    axes = figure.subplots()
    for name, gap in gaps.items():
        draw_gap(axes, gap.time_s / 3600, gap, COLOURS[name], LABELS[name])
    axes.set_title("reserved - allocated, GiB")
    axes.set_xlabel("hours")
    axes.set_ylim(0, None)
    legend_below(figure, *axes.get_legend_handles_labels())
    return figure
