"""Exercise d: buffers of arbitrary lengths against buffers of a few lengths, after 1,000
requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from matplotlib.figure import Figure

from bench.exercise.base import Number, Outcome, Own
from bench.exercise.gaps import GIB, Gap, draw_gap, run_gaps
from bench.exercise.wording import amount, digits, listed
from bench.paper.task import Point, Task
from bench.report.drawing import legend_below, new_figure

TRAFFIC = ("model=llama3_8b", "gpu=a100_80gb", "workload=mixed", "workload.rate_rps=4",
           "workload.duration_s=null", "sample_interval_s=1")  # fmt: skip


class Case(NamedTuple):
    """How long buffers are: said in the finding, on the figure, and to the engine."""

    said: str
    label: str
    colour: str
    overrides: tuple[str, ...]


CASES = {
    "growing": Case("arbitrary lengths that grow token by token", "arbitrary, growing by tokens",
                    "#D55E00", ("backend=contiguous", "backend.reserve=grow")),
    "known": Case("arbitrary lengths known in advance", "arbitrary, known in advance", "#2F3E52",
                  ("backend=contiguous", "backend.reserve=oracle")),
    "bucketed": Case("bucketed lengths", "bucketed: 128, 256, 512, ... tokens", "#CC79A7",
                     ("backend=bucketed",)),
}  # fmt: skip
"""An engine that does not know how long an answer will be has the first or the last of these."""


class Lengths:
    """The same requests with buffers of three kinds."""

    name = "d"
    title = "arbitrary against bucketed lengths: reserved - allocated after 1,000 requests"
    own: Mapping[str, Number] = {
        "requests": Number(1000, 10, 1_000_000, "requests", "that are sent")
    }
    takes = None
    varied = ("backend", "workload.num_requests", "workload.duration_s", "stop_after_s")

    def run(self, task: Task, own: Own) -> Outcome:
        sent = f"workload.num_requests={own['requests']:.0f}"
        shared = (*TRAFFIC, sent)
        points = [
            Point(name, (*shared, *case.overrides, "backend.layout=sequence"))
            for name, case in CASES.items()
        ]
        gaps = run_gaps(task, points)
        return Outcome(
            finding(gaps),
            {"runs": {name: gap.numbers() for name, gap in gaps.items()}},
            lambda: _draw(gaps),
        )


def finding(gaps: Mapping[str, Gap]) -> tuple[str, str]:
    """What is kept at the end, then what each had to have beyond what it ever needed."""
    kept = [f"{amount(gap.gap_bytes[-1])} with {CASES[name].said}" for name, gap in gaps.items()]
    beyond = [amount(gap.beyond_bytes) for gap in gaps.values()]
    unfilled = [_percent(gap.run.number("held_waste")) for gap in gaps.values()]
    sent = max(gap.run.request_counts["sent"] for gap in gaps.values())
    return (
        f"When the last of {sent:,} requests ended reserved - allocated was {listed(kept)}.",
        f"In the same order, the most that was ever reserved was {listed(beyond)} more than the "
        f"most that was ever allocated, and {listed(unfilled)} of what sequences held was not "
        f"filled: {_ranking(gaps)}.",
    )


def _ranking(gaps: Mapping[str, Gap]) -> str:
    """Whether what is kept at the end ranks them as what they had to have does."""
    by_need = sorted(gaps, key=lambda name: gaps[name].beyond_bytes)
    by_end = sorted(gaps, key=lambda name: gaps[name].gap_bytes[-1])
    least, most = CASES[by_need[0]].said, CASES[by_need[-1]].said
    if by_end == by_need:
        return f"either way {least} fragment least and {most} most"
    return (
        f"by that {least} fragment least and {most} most, which reserved - allocated at the end, a "
        "trace of the highest peak, does not say"
    )


def _percent(share: float | None) -> str:
    return "an unknown share" if share is None else f"{digits(100 * share)} %"


def _draw(gaps: Mapping[str, Gap]) -> Figure:
    figure = new_figure(3.2)
    kept, reserved = figure.subplots(1, 2)
    for name, gap in gaps.items():
        case = CASES[name]
        draw_gap(kept, gap.completed, gap, case.colour, case.label)
        reserved.plot(gap.completed, gap.reserved_bytes / GIB, color=case.colour, linewidth=1.1)
        reserved.plot(
            gap.completed, gap.allocated_bytes / GIB, color=case.colour, linewidth=0.9,
            linestyle=":",
        )  # fmt: skip
    kept.set_title("reserved - allocated, GiB")
    reserved.set_title("reserved (line) and allocated (dotted), GiB")
    for axes in (kept, reserved):
        axes.set_xlabel("requests completed")
        axes.set_ylim(0, None)
    legend_below(figure, *kept.get_legend_handles_labels())
    return figure
