"""torch.cuda.empty_cache() in the request path, between phases, or never. No figure of the
paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from bench.paper.drawing import column_figure, of
from bench.paper.figure import Row
from bench.paper.over_time import Curve, draw_curves, mean_over_time, timeline
from bench.paper.reading import number, row
from bench.paper.task import Point, Task
from bench.report.drawing import legend_below
from bench.report.results import Run

TRAFFIC_S = 480.0
RATE_RPS = 3.0
# Four phases of 80 s with 40 s of nothing behind each, in which what runs ends.
PHASES = "[{duration_s: 80, share: 1.5}, {duration_s: 40, share: 0}]"
TRAFFIC = (
    "model=llama3_8b", "gpu=a100_80gb", "workload=mixed", f"workload.rate_rps={RATE_RPS}",
    "workload/arrivals=steps", f"workload.arrivals.steps={PHASES}", "sample_interval_s=1",
)  # fmt: skip
SYSTEMS = {
    "contiguous, growing": (
        "backend=contiguous", "backend.reserve=grow", "backend.layout=sequence",
    ),
    "paged, prompts whole": ("backend=paged", "engine.prefill=whole"),
}  # fmt: skip


class When(NamedTuple):
    """A value of engine.empty_cache, and how it is shown."""

    setting: str
    label: str
    colour: str


WHENS = (
    When("never", "never", "#D55E00"),
    When("between", "between phases", "#009E73"),
    When("step", "in the request path, after every step", "#0072B2"),
)
COLOURS = {when.label: when.colour for when in WHENS}


class Shown(NamedTuple):
    """One quantity: where it is in a summary, what it is multiplied by, and what a panel of it is
    called ("": it has none)."""

    quantity: str
    unit: str
    keys: tuple[str, ...]
    factor: float = 1.0
    panel: str = ""


SHOWN = (
    Shown("TTFT, median", "s", ("ttft_s", "p50"), panel="TTFT,\nmedian, s"),
    Shown("TTFT, 99th percentile", "s", ("ttft_s", "p99"), panel="TTFT,\np99, s"),
    Shown("time between tokens, mean", "ms", ("tpot_s", "mean"), 1000, "TPOT,\nmean, ms"),
    Shown("time in driver calls", "s", ("driver_s",), panel="driver calls,\ns in all"),
    Shown("retries after a refused allocation", "retries", ("allocator", "num_alloc_retries")),
    Shown("peak reserved", "GiB", ("allocator", "peak_reserved_bytes"), 1 / (1 << 30)),
)
BARS = tuple(shown for shown in SHOWN if shown.panel)


class EmptyCache:
    """Latency and memory, by when the cache is emptied."""

    name = "empty_cache"
    title = "torch.cuda.empty_cache() in the request path, between phases, never"
    files = None

    def rows(self, task: Task) -> list[Row]:
        points = [
            Point(
                _name(system, when),
                (*TRAFFIC, task.traffic_s(TRAFFIC_S), *overrides,
                 f"engine.empty_cache={when.setting}"),
            )
            for system, overrides in SYSTEMS.items()
            for when in WHENS
        ]  # fmt: skip
        runs = task.run(points)
        return [
            each
            for system in SYSTEMS
            for when in WHENS
            for each in _rows(runs.get(_name(system, when)), system, when)
        ]

    def draw(self, rows: Sequence[Row]) -> Drawing:
        figure = column_figure(4.4)
        grid = figure.subplots(2, 1 + len(BARS), width_ratios=(4, *[1] * len(BARS)))
        for line, system in zip(grid, SYSTEMS, strict=True):
            draw_curves(line[0], of(rows, panel=system), COLOURS)
            line[0].set_title(f"{system}:\nreserved, GiB", fontsize=8)
            for axes, shown in zip(line[1:], BARS, strict=True):
                _bars(axes, of(rows, panel=system, quantity=shown.quantity), shown)
        legend_below(figure, *grid[0][0].get_legend_handles_labels())
        return figure


def _name(system: str, when: When) -> str:
    return f"{system.partition(',')[0]},{when.setting}"


def _rows(run: Run | None, system: str, when: When) -> list[Row]:
    samples = timeline(run)
    means = (
        ("reserved, mean over time", "reserved"),
        ("reserved - allocated, mean over time", "gap"),
    )
    return [
        *_curve(run, system, when),
        *(
            row(run, mean_over_time(samples, column), panel=system, system=when.label,
                quantity=quantity, unit="GiB")
            for quantity, column in means
        ),
        *(
            row(run, _value(run, shown), panel=system, system=when.label,
                quantity=shown.quantity, unit=shown.unit)
            for shown in SHOWN
        ),
    ]  # fmt: skip


def _value(run: Run | None, shown: Shown) -> float | None:
    value = number(run, *shown.keys)
    return None if value is None else value * shown.factor


def _curve(run: Run | None, system: str, when: When) -> list[Row]:
    samples = timeline(run)
    if not len(samples):
        return []
    return [
        Curve(
            panel=system, system=when.label, quantity="reserved, at the end", unit="GiB",
            ours=float(samples["reserved"].iloc[-1]), note=row_note(run),
            times_s=tuple(samples["time_s"]), values=tuple(samples["reserved"]),
        )
    ]  # fmt: skip


def row_note(run: Run | None) -> str:
    """How a curve's run came about, as of other rows."""
    return row(run, None, panel="", system="", quantity="", unit="").note


def _bars(axes: Axes, rows: Sequence[Row], shown: Shown) -> None:
    """A bar for each setting, from the first to the last, with its number."""
    for place, each in enumerate(rows):
        if each.ours is not None:
            axes.bar(place, each.ours, 0.8, color=COLOURS[each.system])
            said = f"{each.ours:.1g}" if each.ours < 0.1 else f"{each.ours:.3g}"
            axes.annotate(
                said, (place, each.ours), (0, 2), textcoords="offset points", ha="center",
                fontsize=6.5,
            )  # fmt: skip
    axes.set_xticks([])
    axes.margins(y=0.12)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_title(shown.panel, fontsize=8)
