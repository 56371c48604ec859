"""Does the 60-80 % waste figure hold when prompts mostly overlap? No figure of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.figure import Figure as Drawing

from bench.paper.drawing import column_figure, of
from bench.paper.figure import Row
from bench.paper.reading import number, percent, row
from bench.paper.task import Point, Task
from bench.report.drawing import legend_below
from bench.report.palette import backend_colour
from bench.report.quantities import wasted_share
from bench.report.results import Run

SHARES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95)
RATE_RPS = 40.0
BACKENDS = {
    "contiguous": "v", "bucketed": "^", "vmm": "s", "paged": "o", "paged_prefix": "D",
    "paged_radix": "X",
}  # fmt: skip
KIND = "workload.kinds.sharegpt"
# Conversation of the Azure trace, more of it than any backend can serve, so that memory is short.
TRAFFIC = (
    "model=llama3_8b", "gpu=a100_80gb", "kv_budget=8GiB", "workload=sharegpt",
    f"workload/kinds@{KIND}=conversation", "workload.name=overlap",
    "workload.max_total_tokens=null", "engine.max_num_seqs=1024",
)  # fmt: skip
TRAFFIC_S = 120.0


class Shown(NamedTuple):
    """One quantity: where it is in a summary, and its unit."""

    quantity: str
    unit: str
    keys: tuple[str, ...] = ()


WASTE = Shown("waste: KV memory neither a live token's nor cached", "% of KV memory")
PANELS = (
    WASTE,
    Shown("mean batch while memory-bound", "requests", ("memory_bound", "batch_mean")),
    Shown("throughput", "requests/s", ("throughput", "requests_per_s")),
)
OTHERS = (
    Shown("token states", "% of KV memory", ("memory_bound", "token_states")),
    Shown("cached", "% of KV memory", ("memory_bound", "cached")),
    Shown("memory-bound time", "% of time", ("memory_bound", "share_of_time")),
    Shown("saved by sharing", "% of what sequences hold", ("sharing", "saved")),
    Shown("output throughput", "tokens/s", ("throughput", "output_tokens_per_s")),
)


class Overlap:
    """Waste and throughput of each backend as the shared part of prompts grows."""

    name = "overlap"
    title = "waste and throughput of each backend as prompts overlap, 0 to 95 %"
    files = None

    def rows(self, task: Task) -> list[Row]:
        cases = [(backend, share) for share in SHARES for backend in BACKENDS]
        runs = task.run([_point(task, *case) for case in cases])
        return [each for case in cases for each in _rows(runs.get(_name(*case)), *case)]

    def draw(self, rows: Sequence[Row]) -> Drawing:
        figure = column_figure(3.1)
        grid = figure.subplots(1, len(PANELS))
        for axes, shown in zip(grid, PANELS, strict=True):
            for backend, marker in BACKENDS.items():
                mine = of(rows, system=backend, quantity=shown.quantity)
                known = [(r.x, r.ours) for r in mine if r.x is not None and r.ours is not None]
                axes.plot(
                    [x for x, _ in known], [y for _, y in known], marker=marker, markersize=4,
                    linewidth=1.2, color=backend_colour(backend), label=backend,
                )  # fmt: skip
            axes.set_xlabel("shared part of each prompt, %")
            axes.set_title(f"{shown.quantity.partition(':')[0]},\n{shown.unit}", fontsize=8)
            axes.set_ylim(0, 100 if shown is WASTE else None)
        legend_below(figure, *grid[0].get_legend_handles_labels())
        return figure


def _point(task: Task, backend: str, share: float) -> Point:
    overrides = (*TRAFFIC, task.traffic_s(TRAFFIC_S), f"++{KIND}.prefix_share={share}")
    return Point(_name(backend, share), (*overrides, f"backend={backend}"), RATE_RPS)


def _name(backend: str, share: float) -> str:
    return f"{backend},share={share:g}"


def _rows(run: Run | None, backend: str, share: float) -> list[Row]:
    return [
        row(run, _value(run, shown), panel="chat", system=backend, x=100 * share,
            x_is="shared part of each prompt, %", quantity=shown.quantity, unit=shown.unit)
        for shown in (*PANELS, *OTHERS)
    ]  # fmt: skip


def _value(run: Run | None, shown: Shown) -> float | None:
    if shown is WASTE:
        waste = wasted_share(run) if run else None
        return None if waste is None else 100 * waste
    read = percent if shown.unit.startswith("%") else number
    return read(run, *shown.keys)
