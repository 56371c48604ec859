"""Figures over time, one panel a run: fragmentation, and where the KV budget went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bench.report.bars import memory_legend
from bench.report.drawing import Picture, blank, legend_below, mark, new_figure, render
from bench.report.frames import thin
from bench.report.groups import labels, times, wrapped
from bench.report.palette import LIGHT, MEMORY_USES, backend_colour
from bench.report.quantities import GIB
from bench.report.results import Run
from bench.report.sheet import sheet

UNFILLED_COLUMNS = ("time_s", "reservation_bytes", "internal_bytes", "undetermined_bytes")
ALLOCATOR_COLUMNS = ("time_s", "reserved_bytes", "allocated_bytes", "token_states_bytes")
BUDGET_COLUMNS = (
    "time_s", "token_states_bytes", "unfilled_bytes", "rounding_bytes", "cached_bytes",
    "free_bytes", "kv_budget_bytes", "memory_bound",
)  # fmt: skip

PanelDrawer = Callable[[Axes, pd.DataFrame, Run], None]
MOST_PANELS = 12


def timeline_pictures(workload: str, slug: str, group: Sequence[Run]) -> list[Picture]:
    """Fragmentation over time, then waste over time, of a workload's first `MOST_PANELS` runs."""
    shown = list(group[:MOST_PANELS])
    return [_fragmentation(workload, slug, shown, group), _waste(workload, slug, shown, group)]


def memory_over_time(run: Run) -> pd.DataFrame:
    """The terms of the KV budget at each sample, in bytes, in columns named as in `MEMORY_USES`.

    `unfilled_bytes` is split as the run's `unfilled` files say; what they do not cover (the end of
    a killed run) is undetermined.
    """
    frame = run.timeline.read(BUDGET_COLUMNS, run.notes)
    split = run.unfilled.read(UNFILLED_COLUMNS, run.notes).dropna()
    split = split.drop_duplicates("time_s", keep="last")
    joined = frame.merge(split, how="left", on="time_s", sort=False)
    uncovered = joined["reservation_bytes"].isna()
    joined.loc[uncovered, ["reservation_bytes", "internal_bytes"]] = 0.0
    joined.loc[uncovered, "undetermined_bytes"] = joined.loc[uncovered, "unfilled_bytes"]
    return joined


def _fragmentation(workload: str, slug: str, shown: list[Run], group: Sequence[Run]) -> Picture:
    frames = [thin(run.timeline.read(ALLOCATOR_COLUMNS, run.notes)) for run in shown]
    return render(
        f"fragmentation_over_time-{slug}",
        f"{workload}: memory that torch reserved and allocated, what lies between the two, and "
        f"the part that holds live tokens ({times(group)} time).{_remarks(shown, group)}",
        f"Lines over time, a panel a run: {', '.join(run.name for run in shown)}",
        lambda: _draw_panels(shown, frames, _draw_fragmentation, _line_legend()),
    )


def _remarks(shown: Sequence[Run], group: Sequence[Run]) -> str:
    said = []
    if any(run.repeats for run in shown):
        said.append("Of repeats the first is drawn.")
    if any(run.restarts_s for run in shown):
        said.append("Dotted verticals mark where a soak went on with another worker.")
    if len(shown) < len(group):
        said.append(f"The first {len(shown)} of {len(group)} runs.")
    return " ".join(["", *said])


def _waste(workload: str, slug: str, shown: list[Run], group: Sequence[Run]) -> Picture:
    frames = [thin(memory_over_time(run)) for run in shown]

    def draw() -> Figure:
        handles, names = memory_legend(external="free or external")
        handles.append(Line2D([], [], color=LIGHT.ink, linewidth=4, solid_capstyle="butt"))
        return _draw_panels(shown, frames, _draw_waste, (handles, [*names, "memory-bound"]))

    return render(
        f"waste_over_time-{slug}",
        f"{workload}: where the KV budget was at each moment ({times(group)} time). The bar on top "
        "marks memory-bound time: only then is free memory external fragmentation, else idle."
        f"{_remarks(shown, group)}",
        f"Stacked areas over time, a panel a run: {', '.join(run.name for run in shown)}",
        draw,
    )


def _draw_panels(
    group: Sequence[Run],
    frames: Sequence[pd.DataFrame],
    draw: PanelDrawer,
    legend: tuple[list[Artist], list[str]],
) -> Figure:
    """Small multiples with shared axes, two a row."""
    columns = min(len(group), 2, sheet().panels)
    rows = ceil(len(group) / columns)
    figure = new_figure(2.35 * rows + 0.75)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    panels: list[Axes] = list(grid.flat)
    for axes, run, frame, label in zip(panels, group, frames, labels(group), strict=False):
        mark((axes,), run.backend)
        axes.set_title(wrapped(label, 56), pad=12)
        draw(axes, frame, run)
        for restart_s in run.restarts_s:
            axes.axvline(restart_s, color=LIGHT.muted, linewidth=1, linestyle=(0, (1, 3)))
    for axes in panels[len(group) :]:
        axes.set_visible(False)
    end_s = max((frame["time_s"].max() for frame in frames if not frame.empty), default=1)
    for axes in panels[: len(group)]:
        axes.tick_params(labelbottom=True)
        axes.set_xlabel(f"time, s ({times(group)})")
        axes.set_ylabel("memory, GiB")
        axes.set_xlim(0, end_s or 1)
        axes.set_ylim(bottom=0)
    legend_below(figure, *legend)
    return figure


def _line_legend() -> tuple[list[Artist], list[str]]:
    handles: list[Artist] = [
        Line2D([], [], color=LIGHT.muted, linewidth=2),
        Patch(facecolor=LIGHT.muted, alpha=0.35),
        Line2D([], [], color=LIGHT.ink, linewidth=1.2, linestyle=":"),
        Line2D([], [], color=LIGHT.ink, linewidth=1.2, linestyle="--"),
    ]
    return handles, ["reserved", "allocated", "reserved - allocated", "KV in use (token states)"]


def _draw_fragmentation(axes: Axes, frame: pd.DataFrame, run: Run) -> None:
    if frame.empty:
        blank(axes, "no timeline", LIGHT)
        return
    time, colour = frame["time_s"], backend_colour(run.backend)
    reserved, allocated = frame["reserved_bytes"] / GIB, frame["allocated_bytes"] / GIB
    if reserved.notna().any():
        axes.fill_between(time, 0, allocated, color=colour, alpha=0.35, linewidth=0)
        axes.plot(time, reserved, color=colour, linewidth=2)
        axes.plot(time, reserved - allocated, color=LIGHT.ink, linewidth=1.2, linestyle=":")
    else:
        axes.set_title(
            f"no allocator statistics (device={run.device})", loc="right", color=LIGHT.muted,
            fontsize=sheet().small_points, fontweight="normal", style="italic",
        )  # fmt: skip
    axes.plot(
        time, frame["token_states_bytes"] / GIB, color=LIGHT.ink, linewidth=1.2, linestyle="--"
    )


def _draw_waste(axes: Axes, frame: pd.DataFrame, run: Run) -> None:
    if frame.empty:
        blank(axes, "no timeline", LIGHT)
        return
    stacked = np.nan_to_num([frame[use.column].to_numpy() / GIB for use in MEMORY_USES])
    layers = axes.stackplot(
        frame["time_s"], stacked, colors=[use.colour for use in MEMORY_USES], linewidth=0.0
    )
    for layer, use in zip(layers, MEMORY_USES, strict=True):
        layer.set_hatch(use.hatch)
        layer.set_edgecolor(LIGHT.paper)
    axes.broken_barh(
        _bound_spans(frame), (1.0, 0.035), color=LIGHT.ink, linewidth=0, clip_on=False,
        transform=axes.get_xaxis_transform(),
    )  # fmt: skip


def _bound_spans(frame: pd.DataFrame) -> list[tuple[float, float]]:
    """Start and length of each stretch of samples that were memory-bound for half of it or more;
    a sample lasts until the next."""
    times_s, bound = frame["time_s"].to_numpy(), frame["memory_bound"].to_numpy() >= 0.5
    spans: list[tuple[float, float]] = []
    for start, end, is_bound in zip(times_s[:-1], times_s[1:], bound[:-1], strict=True):
        if not is_bound:
            continue
        if spans and sum(spans[-1]) == start:
            start = spans.pop()[0]
        spans.append((start, end - start))
    return spans
