"""Draws what became of a vLLM at each utilization."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.patches import Patch

from bench.paper.drawing import column_figure, of
from bench.paper.figure import Row
from bench.paper.vllm_utilization_cases import (
    BLOCKS,
    DIED,
    FREE,
    KEPT,
    SYSTEMS,
    TOKENS,
    UTILIZATIONS,
    WANTED,
    X_IS,
)
from bench.report.palette import LIGHT

OUTCOMES = {"served": "#A5D6C1", "died of an allocation": "#D98C80", "no result": "#C9C9C9"}
FREE_COLOUR, KEPT_COLOUR = "#A5D6C1", "#F0C45C"


def draw(rows: Sequence[Row]) -> Drawing:
    """Outcomes as cells; KV blocks and throughput as curves; what was there where a run died."""
    figure = column_figure(4.9)
    (above,), (below,) = figure.subfigures(2, 1, squeeze=False, height_ratios=(2, 3))
    _outcomes(above.subplots(), rows)
    above.legend(
        [Patch(facecolor=colour) for colour in OUTCOMES.values()], list(OUTCOMES),
        loc="outside upper center", ncols=3, fontsize=7.5,
    )  # fmt: skip
    blocks, tokens, deaths = below.subplots(1, 3, width_ratios=(3, 3, 4))
    for axes, quantity in ((blocks, BLOCKS), (tokens, TOKENS)):
        _curves(axes, of(rows, quantity=quantity), quantity)
    _deaths(deaths, rows)
    return figure


def _value(rows: Sequence[Row], quantity: str) -> float | None:
    return next((each.ours for each in rows if each.quantity == quantity), None)


def _outcomes(axes: Axes, rows: Sequence[Row]) -> None:
    """A line a setting of the allocator, a cell a utilization."""
    for line, system in enumerate(SYSTEMS):
        for place, share in enumerate(UTILIZATIONS):
            said, outcome = _outcome(of(rows, system=system.label, x=share))
            axes.barh(line, 0.94, 0.88, place - 0.47, color=OUTCOMES[outcome])
            axes.text(place, line, said, ha="center", va="center", fontsize=7.5)
    axes.set_yticks(range(len(SYSTEMS)), [system.label for system in SYSTEMS], fontsize=8)
    axes.set_xticks(range(len(UTILIZATIONS)), [f"{share:g}" for share in UTILIZATIONS])
    axes.set_ylim(len(SYSTEMS) - 0.5, -0.5)
    axes.set_xlim(-0.5, len(UTILIZATIONS) - 0.5)
    axes.set_xlabel(X_IS, fontsize=8)
    axes.tick_params(length=0, labelsize=8)
    axes.grid(visible=False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)


def _outcome(rows: Sequence[Row]) -> tuple[str, str]:
    """What a cell says, and its outcome."""
    step, blocks = _value(rows, DIED), _value(rows, BLOCKS)
    served, died, no_start = OUTCOMES
    if step is not None:
        return f"died,\nstep {step:.0f}", died
    if blocks is None:
        return "no start", no_start
    if _value(rows, TOKENS) is None:
        return "failed", no_start
    return f"{blocks:,.0f}\nblocks", served


def _curves(axes: Axes, rows: Sequence[Row], title: str) -> None:
    for system in SYSTEMS:
        mine = of(rows, system=system.label)
        known = [(r.x, r.ours) for r in mine if r.x is not None and r.ours is not None]
        axes.plot(
            [x for x, _ in known], [y for _, y in known], color=system.colour,
            marker=system.marker, markersize=4, linewidth=1.2, label=system.label,
        )  # fmt: skip
    axes.set_title(title, fontsize=8)
    axes.set_xlabel(X_IS, fontsize=8)
    axes.set_xlim(min(UTILIZATIONS) - 0.01, max(UTILIZATIONS) + 0.005)
    axes.set_xticks(UTILIZATIONS[:2] + UTILIZATIONS[3:4] + UTILIZATIONS[-1:])
    axes.margins(y=0.1)
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=7.5)
    axes.legend(loc="lower center", fontsize=6.5)


def _deaths(axes: Axes, rows: Sequence[Row]) -> None:
    """A bar a run that died: what was free and what was kept, and, as a mark, what was wanted."""
    cases = [(s, u) for s in SYSTEMS for u in UTILIZATIONS]
    dead = [(s, u, mine) for s, u in cases
            if _value(mine := of(rows, system=s.label, x=u), DIED) is not None]  # fmt: skip
    for place, (_, _, mine) in enumerate(dead):
        free, kept, wanted = (_value(mine, name) or 0 for name in (FREE, KEPT, WANTED))
        axes.bar(place, free, 0.6, color=FREE_COLOUR, label="free")
        axes.bar(place, kept, 0.6, bottom=free, color=KEPT_COLOUR, label="reserved, not allocated")
        axes.hlines(wanted, place - 0.4, place + 0.4, color=LIGHT.ink, linewidth=2, label="wanted")
    names = [f"{system.key}\n{share:g}" for system, share, _ in dead]
    axes.set_xticks(range(len(dead)), names, fontsize=7)
    axes.set_title("where it died, MiB", fontsize=8)
    axes.tick_params(axis="y", labelsize=7.5)
    axes.grid(visible=False, axis="x")
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    axes.set_ylim(top=1.45 * axes.get_ylim()[1])
    if handles:
        axes.legend(list(handles.values()), list(handles), loc="upper right", fontsize=6.5)
