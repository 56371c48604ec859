"""Traffic on which an unmodified vLLM is held beside fragbench's own engine, and what is said of
both."""

from __future__ import annotations

from typing import NamedTuple

from bench.paper.task import QUICK_SHARE

FRAGBENCH, VLLM, BOTH = "fragbench", "vLLM", "vLLM - fragbench"
ENGINES = {FRAGBENCH: "inrepo", VLLM: "vllm"}
COLOURS = {FRAGBENCH: "#E69F00", VLLM: "#0072B2"}
# vLLM's activations make other driver calls than the model's recorded ones. They cost nothing here,
# or the two clocks would slip, and samples be of other steps.
CALLS = ("synchronization", "cuda_malloc", "cuda_free", "cu_mem_address_reserve",
         "cu_mem_address_free", "cu_mem_create", "cu_mem_release", "cu_mem_map", "cu_mem_unmap",
         "cu_mem_set_access")  # fmt: skip
COMMON = (
    "model=llama3_8b", "gpu=a100_40gb", "vllm.mode=graphs", "sample_interval_s=1",
    *(f"costs.{call}_us=0" for call in CALLS),
)  # fmt: skip
TRACES = ("azure_llm_2023_conv.csv", "mooncake_conversation.jsonl")
AZURE = ("workload=trace", f"workload.path={TRACES[0]}", "kv_budget=5GiB")
# An eighth of its rate; what is longer than 32,768 tokens both reject.
MOONCAKE = (
    "workload=trace", f"workload.path={TRACES[1]}", "workload.time_scale=8",
    "model.max_model_len=32768", "kv_budget=9GiB",
)  # fmt: skip
AGENT = ("workload=agent", "workload.rate_rps=2", "workload.duration_s=null", "kv_budget=2GiB")


class Case(NamedTuple):
    """Traffic, of which `requests` are sent (`limit` is the setting for them), and a backend."""

    key: str
    label: str
    backend: str
    overrides: tuple[str, ...]
    limit: str
    requests: int

    @property
    def panel(self) -> str:
        return f"{self.label}, {self.backend}"

    def settings(self, *, quick: bool) -> tuple[str, ...]:
        """Overrides for its runs."""
        requests = self.requests // QUICK_SHARE if quick else self.requests
        return (*COMMON, *self.overrides, f"backend={self.backend}", f"{self.limit}={requests}")


CASES = (
    Case("azure", "Azure conversation", "paged", AZURE, "workload.limit", 2000),
    Case("azure", "Azure conversation", "paged_prefix", AZURE, "workload.limit", 2000),
    Case("mooncake", "Mooncake conversation", "paged_prefix", MOONCAKE, "workload.limit", 300),
    Case("agent", "agent sessions", "paged_prefix", AGENT, "workload.num_requests", 500),
)


class Shown(NamedTuple):
    """One quantity: where it is in a summary, and what a table's column is called ("": none)."""

    quantity: str
    unit: str
    keys: tuple[str, ...]
    column: str = ""


SHOWN = (
    Shown("steps", "steps", ("steps",)),
    Shown("requests completed", "requests", ("requests", "completed")),
    Shown("requests rejected", "requests", ("requests", "rejected")),
    Shown("preemptions", "preemptions", ("preemptions",), "preemptions"),
    Shown("prefix hits", "tokens", ("prefix_cache", "hit_tokens"), "hit tokens"),
    Shown("prefix hits of prompt tokens", "%", ("prefix_cache", "hit_rate")),
    Shown("found again after a preemption", "tokens", ("prefix_cache", "resumed_hit_tokens"),
          "found again after\na preemption, tokens"),
    Shown("TTFT, median", "s", ("ttft_s", "p50"), "TTFT p50, s"),
    Shown("TTFT, 99th percentile", "s", ("ttft_s", "p99"), "TTFT p99, s"),
    Shown("output throughput", "tokens/s", ("throughput", "output_tokens_per_s")),
)  # fmt: skip
IN_USE, MOST, APART, APART_SHARE = (
    "KV blocks in use, mean of samples", "KV blocks in use, most",
    "largest difference of KV blocks in use", "the same, of those that fragbench uses",
)  # fmt: skip
