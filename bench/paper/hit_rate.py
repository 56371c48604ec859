"""Hit rate of a prefix cache against the size of its pool. No figure of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import NullLocator

from bench.paper.drawing import column_figure, of
from bench.paper.figure import Row
from bench.paper.jobs import run_jobs
from bench.paper.task import Task
from bench.report.drawing import legend_below

DEFAULT_TRACE = "mooncake_conversation.jsonl"
QUICK_REQUESTS = 500
POOLS_TOKENS = tuple(2**19 * 4**power for power in range(5))
"""Up to 134 million, from which nothing of a Mooncake trace is ever evicted."""


class Cache(NamedTuple):
    """A way of finding prefixes again, and how it is drawn."""

    kind: str
    block_tokens: int
    colour: str
    marker: str

    @property
    def label(self) -> str:
        return f"{self.kind}, blocks of {self.block_tokens}"


CACHES = (
    Cache("hash", 64, "#009E73", "o"),
    Cache("hash", 512, "#56B4E9", "s"),
    Cache("radix", 64, "#D55E00", "D"),
    Cache("radix", 512, "#E69F00", "^"),
)


class HitRate:
    """Share of a trace's prompt tokens that a cache finds, request after request."""

    name = "hit_rate"
    title = f"prefix-cache hit rate against pool size, hash and radix, on {DEFAULT_TRACE}"
    files = "a trace"

    def rows(self, task: Task) -> list[Row]:
        limit = QUICK_REQUESTS if task.quick else None
        cases = [(cache, pool) for cache in CACHES for pool in POOLS_TOKENS]
        payloads = [
            {"cache": cache.kind, "block_tokens": cache.block_tokens, "pool_tokens": pool,
             "path": task.path or DEFAULT_TRACE, "limit": limit}
            for cache, pool in cases
        ]  # fmt: skip
        results = run_jobs("bench.paper.replay:hit_rate", payloads, task)
        return [
            _row(cache, pool, result, task.path or DEFAULT_TRACE)
            for (cache, pool), result in zip(cases, results, strict=True)
        ]

    def draw(self, rows: Sequence[Row]) -> Drawing:
        figure = column_figure(3.2)
        axes = figure.subplots()
        for cache in CACHES:
            mine = of(rows, system=cache.label)
            known = [(r.x, r.ours) for r in mine if r.x is not None and r.ours is not None]
            axes.plot(
                [x for x, _ in known], [y for _, y in known], color=cache.colour,
                marker=cache.marker, markersize=4, linewidth=1.2, label=cache.label,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xticks(POOLS_TOKENS, [f"{pool / 1e6:.1f} M" for pool in POOLS_TOKENS])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_ylim(0, None)
        axes.set_xlabel("pool, tokens (log scale)")
        axes.set_ylabel("prompt tokens found, %")
        axes.set_title(f"Prefix-cache hit rate, {rows[0].panel}")
        legend_below(figure, *axes.get_legend_handles_labels())
        return figure


def _row(cache: Cache, pool_tokens: int, result: dict[str, int], path: str) -> Row:
    trace = path.rpartition("/")[2]
    skipped = result["skipped"]
    return Row(
        panel=trace,
        system=cache.label,
        quantity="prompt tokens found in the cache",
        unit="%",
        ours=100 * result["found_tokens"] / result["asked_tokens"],
        x=pool_tokens,
        x_is="pool, tokens",
        lengths=f"trace {trace}",
        note=f"counted, no time; {skipped} prompts longer than the pool"
        if skipped
        else "counted, no time",
    )
