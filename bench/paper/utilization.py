"""At which share of the card given to a server does its longest prefill fail? No figure of the
paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.patches import Patch

from bench.paper.drawing import column_figure, of
from bench.paper.figure import Row
from bench.paper.jobs import run_points
from bench.paper.reading import number, row
from bench.paper.task import BACKLOG_RPS, RUNS, Point, Task
from bench.report.drawing import legend_below
from bench.report.results import Run, load_runs

JOB = "bench.paper.utilization_job:run"
UTILIZATIONS = (0.85, 0.88, 0.9, 0.92, 0.94, 0.96, 0.97, 0.98)
REQUESTS = 200
EVERY_STEPS = 5
TRAFFIC = ("model=llama3_8b", "gpu=rtx4090", "workload=mixed", "sample_interval_s=1")
GROW = ("backend.reserve=grow", "backend.layout=sequence")


class System(NamedTuple):
    """A backend, and how it computes prompts."""

    label: str
    overrides: tuple[str, ...]


SYSTEMS = (
    System("contiguous, growing", ("backend=contiguous", *GROW)),
    System("the same, expandable segments", ("backend=contiguous_expandable", *GROW)),
    System("paged, prompts whole", ("backend=paged", "engine.prefill=whole")),
    System("paged, prompts in chunks", ("backend=paged",)),
)
OUTCOMES = {
    "always fitted": "#A5D6C1",
    "refused in some tries": "#F0C45C",
    "the run died of a step's own": "#D98C80",
}
PANELS = {True: "their peak is set aside", False: "their peak is not set aside"}
"""By whether the engine sets the activations' peak aside before it divides the card."""
REFUSED = "longest prefill's activations refused"
FIRST = "lowest utilization at which they were, or the run died"
X_IS = "utilization"
DIED = "failed: "
"""What the note of a run that died has before its cause."""


class Utilization:
    """How often the longest prefill's activations are refused while requests wait for memory."""

    name = "utilization"
    title = "utilization 0.85 to 0.98: where the longest prefill's activations fail"
    files = None

    def rows(self, task: Task) -> list[Row]:
        cases = [
            Case(set_aside, system, share)
            for set_aside in PANELS
            for system in SYSTEMS
            for share in UTILIZATIONS
        ]
        points = [
            (_point(task, case), {"every_steps": EVERY_STEPS, "set_aside": case.set_aside})
            for case in cases
        ]
        found = run_points(JOB, points, task)
        runs = {run.folder: run for run in load_runs(task.folder / RUNS)}
        return [
            *(each for case in cases for each in _rows(case, found, runs)),
            *(_first(found, runs, set_aside, system) for set_aside in PANELS for system in SYSTEMS),
        ]

    def draw(self, rows: Sequence[Row]) -> Drawing:
        figure = column_figure(2.9)
        grid = figure.subplots(len(PANELS), 1, sharex=True)
        for axes, panel in zip(grid, PANELS.values(), strict=True):
            _cells(axes, of(rows, quantity=REFUSED, panel=panel))
            axes.set_title(f"activations of the longest prefill: {panel}", fontsize=9)
        grid[-1].set_xlabel(X_IS)
        legend_below(figure, [Patch(facecolor=colour) for colour in OUTCOMES.values()],
                     list(OUTCOMES))  # fmt: skip
        return figure


class Case(NamedTuple):
    """One run."""

    set_aside: bool
    system: System
    share: float

    @property
    def name(self) -> str:
        """Of its folder."""
        system = self.system.label.replace(",", "").replace(" ", "_")
        return f"{system},{self.share:g},{'set_aside' if self.set_aside else 'forgotten'}"


def _point(task: Task, case: Case) -> Point:
    asked = (*task.backlog(REQUESTS), *case.system.overrides, f"utilization={case.share}")
    return Point(case.name, (*TRAFFIC, *asked), BACKLOG_RPS)


def _rows(case: Case, found: Mapping[str, Any], runs: Mapping[str, Run]) -> list[Row]:
    tried, refused = found[case.name]["tried"], found[case.name]["refused"]
    run = runs.get(case.name)
    values = (
        (REFUSED, "% of tries", 100 * refused / tried if tried else None, f"{tried} tries"),
        ("steps whose own activations were refused", "steps", _steps_refused(run), ""),
        ("requests served", "requests/s", number(run, "throughput", "requests_per_s"), ""),
        ("left for activations", "GiB", _left_gib(run, case.set_aside), ""),
    )
    return [
        row(run, value, panel=PANELS[case.set_aside], system=case.system.label, x=case.share,
            x_is=X_IS, quantity=quantity, unit=unit, also=also)
        for quantity, unit, value, also in values
    ]  # fmt: skip


def _steps_refused(run: Run | None) -> float | None:
    if run is None:
        return None
    return float(sum(each.get("kind") == "activation_refused" for each in run.incidents))


def _left_gib(run: Run | None, set_aside: bool) -> float | None:
    """Of the card, beside weights and the KV budget."""
    headroom, peak = (number(run, key) for key in ("headroom_bytes", "activation_peak_bytes"))
    if headroom is None or peak is None:
        return None
    return (headroom + (peak if set_aside else 0)) / (1 << 30)


def _first(
    found: Mapping[str, Any], runs: Mapping[str, Run], set_aside: bool, system: System
) -> Row:
    """The lowest utilization at which a try was refused or the run died; none where none was."""
    cases = [Case(set_aside, system, share) for share in UTILIZATIONS]
    failed = [case.share for case in cases if found[case.name]["refused"] or _died(runs, case)]
    return Row(
        panel=PANELS[set_aside], system=system.label, quantity=FIRST, unit="",
        ours=min(failed, default=None), note="" if failed else "never refused",
    )  # fmt: skip


def _died(runs: Mapping[str, Run], case: Case) -> bool:
    run = runs.get(case.name)
    return run is not None and run.status == "failed"


def _cells(axes: Axes, rows: Sequence[Row]) -> None:
    """A line a system, a cell a utilization."""
    for line, system in enumerate(SYSTEMS):
        for place, each in enumerate(of(rows, system=system.label)):
            died = DIED in each.note
            said = "died" if died else f"{each.ours:.1f} %" if each.ours else ""
            colour = list(OUTCOMES.values())[2 if died else 1 if each.ours else 0]
            axes.barh(line, 0.94, 0.88, place - 0.47, color=colour)
            axes.text(place, line, said, ha="center", va="center", fontsize=7.5)
    axes.set_yticks(range(len(SYSTEMS)), [system.label for system in SYSTEMS], fontsize=8)
    axes.set_xticks(range(len(UTILIZATIONS)), [f"{share:g}" for share in UTILIZATIONS])
    axes.set_ylim(len(SYSTEMS) - 0.5, -0.5)
    axes.set_xlim(-0.5, len(UTILIZATIONS) - 0.5)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
