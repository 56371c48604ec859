"""Hit rate of a prefix cache against its block size. No figure of the paper."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure as Drawing

from bench.paper.drawing import column_figure, of, panels
from bench.paper.figure import Row
from bench.paper.reading import number, percent, row
from bench.paper.task import Point, Task
from bench.report.drawing import legend_below
from bench.report.palette import backend_colour
from bench.report.results import Run

BLOCKS = (1, 4, 16, 64, 256)
BACKENDS = {"paged_prefix": "o", "paged_radix": "X"}
WORKLOADS = ("chat", "rag", "agent")
FOUND = "tokens found in the cache"
SETUP = ("model=llama3_8b", "gpu=a100_80gb", "kv_budget=16GiB", "costs=default")
TRAFFIC_S = 300.0


class HitBlocks:
    """A hash finds whole blocks, a radix tree tokens: what that is worth on traffic that shares."""

    name = "hit_blocks"
    title = "prefix-cache hit rate against block size, hash and radix, on chat, rag and agent"
    files = None

    def rows(self, task: Task) -> list[Row]:
        cases = [(w, backend, block) for w in WORKLOADS for backend in BACKENDS for block in BLOCKS]
        runs = task.run([_point(task, *case) for case in cases])
        return [each for case in cases for each in _rows(runs.get(_name(*case)), *case)]

    def draw(self, rows: Sequence[Row]) -> Drawing:
        figure = column_figure(3.0)
        grid = figure.subplots(1, len(WORKLOADS), sharey=True)
        for axes, panel in zip(grid, panels(rows), strict=True):
            for backend, marker in BACKENDS.items():
                mine = of(rows, panel=panel, system=backend, quantity=FOUND)
                known = [(r.x, r.ours) for r in mine if r.x is not None and r.ours is not None]
                axes.plot(
                    [x for x, _ in known], [y for _, y in known], marker=marker, markersize=5,
                    linewidth=1.2, color=backend_colour(backend), label=backend,
                )  # fmt: skip
            axes.set_xscale("log", base=2)
            axes.set_xticks(BLOCKS, [str(block) for block in BLOCKS])
            axes.set_ylim(0, 100)
            axes.set_xlabel("block size, tokens")
            axes.set_title(panel)
        grid[0].set_ylabel("tokens found, %")
        legend_below(figure, *grid[0].get_legend_handles_labels())
        return figure


def _point(task: Task, workload: str, backend: str, block: int) -> Point:
    traffic = (*SETUP, f"workload={workload}", task.traffic_s(TRAFFIC_S))
    return Point(
        _name(workload, backend, block),
        (*traffic, f"backend={backend}", f"backend.block_size={block}"),
    )


def _name(workload: str, backend: str, block: int) -> str:
    return f"{workload},{backend},block={block}"


def _rows(run: Run | None, workload: str, backend: str, block: int) -> list[Row]:
    quantities = (
        (FOUND, "% of tokens", percent(run, "prefix_cache", "hit_rate")),
        ("evicted", "blocks", number(run, "prefix_cache", "evicted_blocks")),
        ("TTFT, mean", "s", number(run, "ttft_s", "mean")),
    )
    return [
        row(run, ours, panel=workload, system=backend, x=block, x_is="block size, tokens",
            quantity=quantity, unit=unit)
        for quantity, unit, ours in quantities
    ]  # fmt: skip
