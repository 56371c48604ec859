"""What the engine last said of itself, as Prometheus sees it: memory, queue and the allocator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Stats = Mapping[str, float | None]

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
    "num_alloc_retries": "Allocator: allocations that made it release its cached segments.",
    "num_ooms": "Allocator: allocations that failed.",
    "driver_calls": "Allocator: calls of the driver.",
}


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


def kv_usage(stats: Stats) -> float | None:
    """held / budget; cached blocks count as free, as in vLLM, for they can be evicted."""
    held, budget = stats.get("held_bytes"), stats.get("kv_budget_bytes")
    return held / budget if held is not None and budget else None
