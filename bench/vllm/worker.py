"""vLLM's own worker, which profiles with a cache as small as vLLM makes it without `kv_budget`.

vLLM captures sample graphs over a KV cache of a block a sequence, to see what graphs take. A given
number of blocks, `num_gpu_blocks_override`, holds for that one too (vLLM 0.33): it would take the
whole budget, let it go and, where something small has stayed in its segment, keep it beside the
real cache. vLLM takes a worker's class as a setting, `worker_cls`.
"""

from __future__ import annotations

from vllm.v1.worker.gpu_worker import Worker


class SizedWorker(Worker):  # type: ignore[misc,unused-ignore]
    """Told of the number of blocks once it has profiled."""

    def determine_available_memory(self) -> int:
        blocks = self.cache_config.num_gpu_blocks_override
        self.cache_config.num_gpu_blocks_override = None
        try:
            return int(super().determine_available_memory())
        finally:
            self.cache_config.num_gpu_blocks_override = blocks
