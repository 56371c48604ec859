"""Figures over time, one panel a run: fragmentation, and where the KV budget went."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import ceil

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bench.report.drawing import Picture, blank, legend_below, new_figure
from bench.report.figures import memory_legend, render
from bench.report.frames import thin
from bench.report.groups import by_workload, labels, times, wrapped
from bench.report.palette import MEMORY_USES, Theme, backend_colour
from bench.report.quantities import GIB
from bench.report.results import Run

UNFILLED_COLUMNS = ("time_s", "reservation_bytes", "internal_bytes", "undetermined_bytes")
ALLOCATOR_COLUMNS = ("time_s", "reserved_bytes", "allocated_bytes", "token_states_bytes")
BUDGET_COLUMNS = (
    "time_s", "token_states_bytes", "unfilled_bytes", "rounding_bytes", "cached_bytes",
    "free_bytes", "kv_budget_bytes", "memory_bound",
)  # fmt: skip

PanelDrawer = Callable[[Axes, pd.DataFrame, Run, Theme], None]


def timeline_pictures(runs: Sequence[Run]) -> list[Picture]:
    """For each workload: fragmentation over time, then waste over time."""
    pictures, used = [], set[str]()
    for workload, group in by_workload(runs).items():
        slug = _slug(workload, used)
        pictures += [_fragmentation(workload, slug, group), _waste(workload, slug, group)]
    return pictures


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


def _slug(workload: str, used: set[str]) -> str:
    """`workload` as part of a file name, unlike those in `used`, to which it is added."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", workload).strip("-.")[:60] or "workload"
    slug, number = plain, 1
    while slug.lower() in used:
        number += 1
        slug = f"{plain}-{number}"
    used.add(slug.lower())
    return slug


def _fragmentation(workload: str, slug: str, group: list[Run]) -> Picture:
    frames = [thin(run.timeline.read(ALLOCATOR_COLUMNS, run.notes)) for run in group]
    return render(
        f"fragmentation_over_time-{slug}",
        f"{workload}: memory that torch reserved and allocated, what lies between the two, and "
        f"the part that holds live tokens ({times(group)} time).{_restarts_said(group)}",
        f"Lines over time, a panel a run: {', '.join(run.name for run in group[:12])}",
        lambda theme: _draw_panels(group, frames, _draw_fragmentation, _line_legend(theme), theme),
    )


def _restarts_said(group: Sequence[Run]) -> str:
    restarted = any(run.restarts_s for run in group)
    return " Dotted verticals mark where a soak went on with another worker." if restarted else ""


def _waste(workload: str, slug: str, group: list[Run]) -> Picture:
    frames = [thin(memory_over_time(run)) for run in group]

    def draw(theme: Theme) -> Figure:
        handles, names = memory_legend(theme, external="free or external")
        handles.append(Line2D([], [], color=theme.ink, linewidth=4, solid_capstyle="butt"))
        return _draw_panels(group, frames, _draw_waste, (handles, [*names, "memory-bound"]), theme)

    return render(
        f"waste_over_time-{slug}",
        f"{workload}: where the KV budget was at each moment ({times(group)} time). The bar on top "
        "marks memory-bound time: only then is free memory external fragmentation, else idle.",
        f"Stacked areas over time, a panel a run: {', '.join(run.name for run in group[:12])}",
        draw,
    )


def _draw_panels(
    group: Sequence[Run],
    frames: Sequence[pd.DataFrame],
    draw: PanelDrawer,
    legend: tuple[list[Artist], list[str]],
    theme: Theme,
) -> Figure:
    """Small multiples with shared axes, two a row."""
    columns = min(len(group), 2)
    rows = ceil(len(group) / columns)
    figure = new_figure(2.35 * rows + 0.75)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    panels: list[Axes] = list(grid.flat)
    for axes, run, frame, label in zip(panels, group, frames, labels(group), strict=False):
        axes.set_title(wrapped(label, 56), pad=12)
        draw(axes, frame, run, theme)
        for restart_s in run.restarts_s:
            axes.axvline(restart_s, color=theme.muted, linewidth=1, linestyle=(0, (1, 3)))
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


def _line_legend(theme: Theme) -> tuple[list[Artist], list[str]]:
    handles: list[Artist] = [
        Line2D([], [], color=theme.muted, linewidth=2),
        Patch(facecolor=theme.muted, alpha=0.35),
        Line2D([], [], color=theme.ink, linewidth=1.2, linestyle=":"),
        Line2D([], [], color=theme.ink, linewidth=1.2, linestyle="--"),
    ]
    return handles, ["reserved", "allocated", "reserved - allocated", "KV in use (token states)"]


def _draw_fragmentation(axes: Axes, frame: pd.DataFrame, run: Run, theme: Theme) -> None:
    if frame.empty:
        blank(axes, "no timeline", theme)
        return
    time, colour = frame["time_s"], backend_colour(run.backend)
    reserved, allocated = frame["reserved_bytes"] / GIB, frame["allocated_bytes"] / GIB
    if reserved.notna().any():
        axes.fill_between(time, 0, allocated, color=colour, alpha=0.35, linewidth=0)
        axes.plot(time, reserved, color=colour, linewidth=2)
        axes.plot(time, reserved - allocated, color=theme.ink, linewidth=1.2, linestyle=":")
    else:
        axes.set_title(
            f"no allocator statistics (device={run.device})", loc="right", color=theme.muted,
            fontsize=8, fontweight="normal", style="italic",
        )  # fmt: skip
    axes.plot(
        time, frame["token_states_bytes"] / GIB, color=theme.ink, linewidth=1.2, linestyle="--"
    )


def _draw_waste(axes: Axes, frame: pd.DataFrame, run: Run, theme: Theme) -> None:
    if frame.empty:
        blank(axes, "no timeline", theme)
        return
    stacked = np.nan_to_num([frame[use.column].to_numpy() / GIB for use in MEMORY_USES])
    layers = axes.stackplot(
        frame["time_s"], stacked, colors=[use.colour for use in MEMORY_USES], linewidth=0.0
    )
    for layer, use in zip(layers, MEMORY_USES, strict=True):
        layer.set_hatch(use.hatch)
        layer.set_edgecolor(theme.paper)
    axes.broken_barh(
        _bound_spans(frame), (1.0, 0.035), color=theme.ink, linewidth=0, clip_on=False,
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
