"""Settings of a vLLM that its figure varies one at a time, and what is read off its runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from bench.paper.vllm_runs import MIB


class Shown(NamedTuple):
    """One quantity: where it is in a summary, what it is multiplied by, and what a panel of it is
    called ("": it has none)."""

    quantity: str
    unit: str
    keys: tuple[str, ...]
    factor: float = 1.0
    panel: str = ""
    also: str = ""


class Study(NamedTuple):
    """One setting: its values by what they are called, and the traffic; `line` where the values
    are numbers."""

    label: str
    setting: str
    values: Mapping[str, str]
    overrides: tuple[str, ...]
    shown: tuple[Shown, ...]
    line: bool = False


def _numbers(*values: int) -> dict[str, str]:
    return {str(value): str(value) for value in values}


GPU = ("model=llama3_8b", "gpu=a100_40gb", "engine=vllm", "vllm.mode=graphs")
HANDFUL = ("experiment=vllm_settings",)
BACKLOG = (*GPU, "workload=sharegpt", "workload.rate_rps=10000", "workload.duration_s=null",
           "workload.num_requests=200", "kv_budget=2GiB")  # fmt: skip
SHARED = (*GPU, "workload=rag", "workload.rate_rps=4", "workload.duration_s=null",
          "workload.num_requests=200", "kv_budget=5GiB")  # fmt: skip

BLOCKS = Shown("KV blocks", "blocks", ("vllm", "num_gpu_blocks"), panel="KV blocks")
PEAK = Shown("peak of activations, as vLLM profiled it", "MiB", ("activation_peak_bytes",), 1 / MIB,
             "peak of\nactivations, MiB")  # fmt: skip
GRAPHS = Shown("graph pool", "MiB", ("vllm", "graph_pool_bytes"), 1 / MIB, "graph pool, MiB")
ESTIMATE = Shown("set aside for graphs before they are captured", "MiB",
                 ("vllm", "graphs_estimate_bytes"), 1 / MIB)  # fmt: skip
START = Shown("start-up", "s", ("vllm", "start_s"),
              also="measured, on the machine that made the figure")  # fmt: skip
WASTE = Shown("held KV memory without a live token", "%", ("held_waste",), 100,
              "held without\na live token, %")  # fmt: skip
KERNEL = "what a block size costs the kernel is a constant of the cost model"
TOKENS = Shown("output throughput", "tokens/s", ("throughput", "output_tokens_per_s"),
               panel="output tokens/s", also=KERNEL)  # fmt: skip
HITS = Shown("prompt tokens found in the cache", "%", ("prefix_cache", "hit_rate"), 100,
             "prompt tokens\nfound, %")  # fmt: skip
TTFT = Shown("TTFT, median", "s", ("ttft_s", "p50"), panel="TTFT,\nmedian, s")
PREEMPTIONS = Shown("preemptions", "preemptions", ("preemptions",))

STUDIES = (
    Study("block size", "backend.block_size", _numbers(16, 32, 64, 128), BACKLOG,
          (WASTE, TOKENS, BLOCKS._replace(panel=""), PREEMPTIONS), line=True),
    Study("prefix caching", "backend", {"off": "paged", "on": "paged_prefix"}, SHARED,
          (HITS, TTFT, PREEMPTIONS)),
    Study("mode", "vllm.mode", {mode: mode for mode in ("eager", "graphs", "compiled")}, HANDFUL,
          (BLOCKS, GRAPHS, ESTIMATE, PEAK._replace(panel=""), START)),
    Study("token budget", "engine.token_budget", _numbers(512, 1024, 2048, 4096, 8192, 16384),
          HANDFUL, (PEAK, BLOCKS), line=True),
)  # fmt: skip
