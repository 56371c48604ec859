"""Exercise a: with half of a card free, an allocation fails. And why the classic way to show it,
freeing every other large tensor, does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from rich.table import Table

from bench.exercise.allocator_jobs import compose, run_jobs
from bench.exercise.base import Outcome, Own
from bench.exercise.fragment_drawing import draw_map, legend
from bench.exercise.fragment_finding import (
    finding,
    gap_bytes,
    given_back,
    non_releasable,
    outcome,
)
from bench.exercise.fragment_layouts import MIB, SIZES, Layout, layouts, payload
from bench.exercise.wording import amount
from bench.paper.task import Task
from bench.report.drawing import new_figure

JOB = "bench.exercise.fragment_job:fragment"
TAKES = ("gpu", "device", "alloc_conf", "jobs")


class Fragment:
    """The same frees in three layouts, and one request."""

    name = "a"
    title = "fragment memory and fail a large allocation with plenty free"
    own = SIZES
    takes = TAKES
    varied = ()

    def run(self, task: Task, own: Own) -> Outcome:
        setup = compose(task, self.name)
        cases = {each.key: (setup.alloc_conf, payload(each, own)) for each in layouts(own)}
        results = run_jobs(task, setup, JOB, cases)
        wanted = int(own["request_mib"]) * MIB
        return Outcome(
            finding(results, layouts(own), wanted),
            {"device": setup.device, "request_bytes": wanted, "layouts": stripped(results)},
            lambda: _draw(results, layouts(own), wanted),
            (table(results, layouts(own)), *_read_out(results, layouts(own))),
            {f"memory_summary_{key}.txt": r["memory_summary"] for key, r in results.items()},
        )


def stripped(results: Mapping[str, Any]) -> dict[str, Any]:
    """What the JSON file has of them."""
    left_out = ("memory_summary", "shown")
    return {
        key: {name: value for name, value in result.items() if name not in left_out}
        for key, result in results.items()
    }


def table(results: Mapping[str, Any], cases: tuple[Layout, ...]) -> Table:
    """A line a layout."""
    ours = any(result["before"]["non_releasable_bytes"] is None for result in results.values())
    note = "* counted from the segments: torch counts none that is expandable" if ours else None
    shown = Table(box=None, padding=(0, 2, 0, 0), caption=note, caption_justify="left")
    shown.add_column("tensors", overflow="fold")
    for heading in ("free", "reserved - allocated", "non-releasable", "largest free piece",
                    "given back", "the request was"):  # fmt: skip
        shown.add_column(heading, justify="right")
    for case in cases:
        result = results[case.key]
        before = result["before"]
        shown.add_row(
            case.title, amount(before["free_bytes"]), amount(gap_bytes(result)),
            non_releasable(result), amount(before["largest_free_bytes"]),
            amount(given_back(result)), outcome(result),
        )  # fmt: skip
    return shown


def _read_out(results: Mapping[str, Any], cases: tuple[Layout, ...]) -> list[Table]:
    """torch's memory_summary() before the request: the lines to look at."""
    tables = []
    for case in cases:
        shown = Table(
            title=f"torch.cuda.memory_summary(), {case.title}", title_justify="left", box=None,
            padding=(0, 2, 0, 0), show_header=False,
        )  # fmt: skip
        for name, current in summary_lines(results[case.key]["memory_summary"]).items():
            shown.add_row(name, current, LOOK_AT.get(name, ""))
        tables.append(shown)
    return tables


LOOK_AT = {
    "Allocated memory": "",
    "Requested memory": "",
    "GPU reserved memory": "<- less allocated memory: kept and unused",
    "Non-releasable memory": "<- of that, what cannot go back",
}


def summary_lines(summary: str) -> dict[str, str]:
    """The current usage of what is to be looked at, as `memory_summary()` prints it."""
    cells = [[cell.strip() for cell in line.split("|")] for line in summary.splitlines()]
    return {row[1]: row[2] for row in cells if len(row) > 2 and row[1] in LOOK_AT}


def _draw(results: Mapping[str, Any], cases: tuple[Layout, ...], wanted: int) -> Figure:
    figure = new_figure(3.4)
    panels = figure.subplots(1, len(cases))
    for axes, case in zip(panels, cases, strict=True):
        result = results[case.key]
        draw_map(axes, result["shown"], f"{case.title}:\n{amount(wanted)} {outcome(result)}")
    legend(figure)
    return figure
