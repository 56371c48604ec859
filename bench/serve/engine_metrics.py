"""What the engine last said of itself, as Prometheus sees it: memory, queue and the allocator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from bench.incidents.rules import NOT_KNOWN, Layer

Stats = Mapping[str, Any]
"""Numbers, null where there is none, and tallies (bench.metrics.tally) by size."""

_VLLM_GAUGES = {
    "vllm:num_requests_running": ("running", "Requests that hold memory."),
    "vllm:num_requests_waiting": ("waiting", "Requests in the engine's queue."),
}
_VLLM_COUNTERS = {
    "vllm:num_preemptions": ("preemptions", "Sequences that lost their memory to another."),
    "vllm:prefix_cache_queries": ("prefix_queries", "Prompt tokens looked up in the cache."),
    "vllm:prefix_cache_hits": ("prefix_hits", "Prompt tokens found in the cache."),
}
_GAUGES = {
    "kv_budget_bytes": "Memory for K and V.",
    "free_bytes": "Of the KV budget: free.",
    "cached_bytes": "Of the KV budget: kept for reuse, evictable.",
    "held_bytes": "Of the KV budget: held by sequences.",
    "token_states_bytes": "Of the held bytes: K and V of live tokens, shared ones once.",
    "live_tokens": "Tokens whose K and V are held, shared ones once.",
    "kv_capacity_tokens": "Tokens whose K and V the KV budget has room for: its envelope.",
    "blocks_used": "Blocks of the pool that sequences hold.",
    "blocks_free": "Blocks of the pool that nobody holds or keeps.",
    "blocks_cached": "Blocks of the pool that are kept for reuse, evictable.",
    "step_sequences": "Sequences in the last step.",
    "step_tokens": "Tokens in the last step.",
    "token_budget": "Tokens that a step may have, of prompts alone with whole prefills.",
    "allocated_bytes": "Allocator: handed out.",
    "reserved_bytes": "Allocator: taken from the driver.",
    "active_bytes": "Allocator: handed out or waiting for an event.",
    "requested_bytes": "Allocator: handed out, before rounding.",
    "inactive_split_bytes": "Allocator: free parts of segments in use.",
    "largest_free_bytes": "Allocator: the largest free block.",
    "segments": "Allocator: segments.",
}
_COUNTERS = {
    "steps": "Steps of the engine.",
    "oom_incidents": "Episodes in which memory was refused.",
    "worker_restarts": "Times that the engine's process died and another went on.",
    "num_alloc_retries": "Allocator: allocations that made it release its cached segments.",
    "num_ooms": "Allocator: allocations that failed.",
    "driver_calls": "Allocator: calls of the driver.",
}


KINDS = ("reserve_refused", "extend_refused", "activation_refused", "source_refused")
LAYERS = (*Layer, NOT_KNOWN)

STEP_BUCKETS = [1 << power for power in range(15)]
FAILURE_BUCKETS = [1 << power for power in range(20, 37)]


class EngineCollector(Collector):
    """Reads `stats` at every scrape; a value that is null or not there has no line."""

    def __init__(self, model_name: str, stats: Callable[[], Stats]) -> None:
        self._labels = {"model_name": model_name, "engine": "0"}
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        """Prometheus's families."""
        stats = self._stats()
        for name, (key, meaning) in _VLLM_GAUGES.items():
            yield from self._gauge(name, meaning, stats.get(key), self._labels)
        yield from self._gauge("vllm:kv_cache_usage_perc",
                               "Share of the KV budget that sequences hold, 0 to 1.",
                               kv_usage(stats), self._labels)  # fmt: skip
        for name, (key, meaning) in _VLLM_COUNTERS.items():
            yield from self._counter(name, meaning, stats.get(key), self._labels)
        for key, meaning in _GAUGES.items():
            yield from self._gauge(f"fragbench:{key}", meaning, stats.get(key), {})
        for key, meaning in _COUNTERS.items():
            yield from self._counter(f"fragbench:{key}", meaning, stats.get(key), {})
        yield from self._step_sizes(stats.get("tokens_of_steps"))
        yield from _failures(stats.get("allocation_failures_by_size"))

    def _step_sizes(self, tally: Mapping[str, Any] | None) -> Iterator[Metric]:
        if tally is not None:
            family = HistogramMetricFamily(
                "vllm:iteration_tokens_total", "Tokens of each step.", labels=list(self._labels)
            )
            sizes = _histogram([tally], STEP_BUCKETS)
            family.add_metric(list(self._labels.values()), *sizes)
            yield family

    def _gauge(
        self, name: str, meaning: str, value: float | None, labels: Mapping[str, str]
    ) -> Iterator[Metric]:
        if value is not None:
            family = GaugeMetricFamily(name, meaning, labels=list(labels))
            family.add_metric(list(labels.values()), value)
            yield family

    def _counter(
        self, name: str, meaning: str, value: float | None, labels: Mapping[str, str]
    ) -> Iterator[Metric]:
        if value is not None:
            family = CounterMetricFamily(name, meaning, labels=list(labels))
            family.add_metric(list(labels.values()), value)
            yield family


def _failures(tallies: list[Mapping[str, Any]] | None) -> Iterator[Metric]:
    """Failures by kind and layer, and their sizes by kind: there from the start, at 0, for the
    first failure is a rise too."""
    if tallies is None:
        return
    counter = CounterMetricFamily(
        "fragbench:allocation_failures", "Requests for memory that were refused, by what asked "
        "and by the layer that it comes from.", labels=["kind", "layer"],
    )  # fmt: skip
    sizes = HistogramMetricFamily(
        "fragbench:allocation_failure_bytes", "Bytes of each of them.", labels=["kind"]
    )
    for kind in KINDS:
        of_kind = [tally for tally in tallies if tally["kind"] == kind]
        for layer in LAYERS:
            counts = (
                sum(t["counts"].values()) for t in of_kind if (t["layer"] or NOT_KNOWN) == layer
            )
            counter.add_metric([kind, layer], sum(counts))
        sizes.add_metric([kind], *_histogram(of_kind, FAILURE_BUCKETS))
    yield counter
    yield sizes


def _histogram(
    tallies: Collection[Mapping[str, Any]], bounds: Iterable[int]
) -> tuple[list[tuple[str, float]], float]:
    """Prometheus's cumulative buckets, always the same ones, and the sum."""
    counts: Counter[int] = Counter()
    for tally in tallies:
        counts.update({int(bound): count for bound, count in tally["counts"].items()})
    buckets = [
        (_go(bound), float(sum(n for size, n in counts.items() if size <= bound)))
        for bound in bounds
    ]
    return [*buckets, ("+Inf", float(counts.total()))], sum(tally["sum"] for tally in tallies)


def _go(bound: int) -> str:
    """As Prometheus writes bounds."""
    return str(floatToGoString(bound))  # type: ignore[no-untyped-call]


def kv_usage(stats: Stats) -> float | None:
    """held / budget; cached blocks count as free, as in vLLM, for they can be evicted."""
    held, budget = stats.get("held_bytes"), stats.get("kv_budget_bytes")
    return held / budget if held is not None and budget else None
