"""What do block size, prefix caching, CUDA graphs and the token budget cost a vLLM? No figure of
the paper."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import NullLocator

from bench.paper.drawing import column_figure, of
from bench.paper.figure import Row
from bench.paper.reading import number, row
from bench.paper.task import QUICK_SHARE, Point, Task
from bench.paper.vllm_settings_cases import STUDIES, Shown, Study
from bench.report.quantities import format_number
from bench.report.results import Run

COLOUR = "#0072B2"
ROOM = 1.2
"""Of an axis, for the numbers above what is drawn."""
REQUESTS = "workload.num_requests="


class VllmSettings:
    """KV blocks, activations, graphs, waste, hits and TTFT of a vLLM, one setting at a time."""

    name = "vllm_settings"
    title = "a vLLM's block size, prefix caching, mode and token budget: what each costs"
    files = None

    def rows(self, task: Task) -> list[Row]:
        task.refuse_settings(("experiment", "engine"))
        cases = [(study, value) for study in STUDIES for value in study.values]
        runs = task.run([_point(task, *case) for case in cases])
        return [each for case in cases for each in _rows(runs.get(_name(*case)), *case)]

    def draw(self, rows: Sequence[Row]) -> Drawing:
        figure = column_figure(4.2)
        panels = [(study, shown) for study in STUDIES for shown in study.shown if shown.panel]
        grid = figure.subplots(2, len(panels) // 2)
        for axes, (study, shown) in zip(grid.flat, panels, strict=True):
            mine = of(rows, panel=study.label, quantity=shown.quantity)
            axes.tick_params(labelsize=6.5)
            axes.margins(x=0.15)
            (_line if study.line else _bars)(axes, mine)
            axes.set_title(shown.panel, fontsize=8)
            axes.set_xlabel(study.label, fontsize=8)
            axes.set_ylim(0, ROOM * max(row.ours or 0 for row in mine) or 1)
        return figure


def _name(study: Study, value: str) -> str:
    return f"{study.label.replace(' ', '_')}={value}"


def _point(task: Task, study: Study, value: str) -> Point:
    overrides = [_shorter(each) if task.quick else each for each in study.overrides]
    return Point(_name(study, value), (*overrides, f"{study.setting}={study.values[value]}"))


def _shorter(override: str) -> str:
    """Fewer requests, where an override says how many."""
    if not override.startswith(REQUESTS):
        return override
    return f"{REQUESTS}{int(override.removeprefix(REQUESTS)) // QUICK_SHARE}"


def _rows(run: Run | None, study: Study, value: str) -> list[Row]:
    x = float(value) if study.line else None
    return [
        row(run, _value(run, shown), panel=study.label, system=value, x=x,
            x_is=study.setting if study.line else "", quantity=shown.quantity, unit=shown.unit,
            also=shown.also)
        for shown in study.shown
    ]  # fmt: skip


def _value(run: Run | None, shown: Shown) -> float | None:
    value = number(run, *shown.keys)
    return None if value is None else value * shown.factor


def _line(axes: Axes, rows: Sequence[Row]) -> None:
    """Over numbers, each twice the one before."""
    known = [(r.x, r.ours) for r in rows if r.x is not None and r.ours is not None]
    axes.plot([x for x, _ in known], [y for _, y in known], color=COLOUR, marker="o",
              markersize=4, linewidth=1.2)  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks([x for x, _ in known], [_short(x) for x, _ in known])
    axes.xaxis.set_minor_locator(NullLocator())
    for x, y in (known[0], known[-1]) if known else ():
        _number(axes, x, y)


def _bars(axes: Axes, rows: Sequence[Row]) -> None:
    for place, each in enumerate(rows):
        if each.ours is not None:
            axes.bar(place, each.ours, 0.7, color=COLOUR)
            _number(axes, place, each.ours)
    axes.set_xticks(range(len(rows)), [each.system for each in rows], fontsize=6)
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.grid(visible=False, axis="x")


def _number(axes: Axes, x: float, y: float) -> None:
    said = format_number(y, 0 if y.is_integer() else None)
    axes.annotate(said, (x, y), (0, 4), textcoords="offset points", ha="center", fontsize=6.5)


def _short(value: float) -> str:
    return f"{value / 1024:g}k" if value >= 1024 else f"{value:g}"
