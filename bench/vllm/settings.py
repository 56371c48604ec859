"""What engine=vllm can be told, and what it cannot follow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.errors import SettingError
from bench.setting_checks import choice

if TYPE_CHECKING:
    from bench.config import Config

MODES = ("eager", "graphs", "compiled")

OWN_ARGUMENTS = {
    "model": "model",
    "seed": "seed",
    "dtype": "weight_dtype",
    "kv_cache_dtype": "kv_dtype",
    "max_model_len": "max_model_len",
    "gpu_memory_utilization": "utilization",
    "num_gpu_blocks_override": "kv_budget",
    "kv_cache_memory_bytes": "kv_budget",
    "tensor_parallel_size": "tensor_parallel",
    "block_size": "backend.block_size",
    "watermark": "backend.watermark",
    "enable_prefix_caching": "backend",
    "enable_chunked_prefill": "engine.prefill",
    "max_num_seqs": "engine.max_num_seqs",
    "max_num_batched_tokens": "engine.token_budget",
    "scheduler_reserve_full_isl": "engine.admit_whole_prompt",
    "enforce_eager": "vllm.mode",
}
"""Arguments of vLLM that a setting of ours is for."""

FIXED_ARGUMENTS = (
    "scheduler_cls", "async_scheduling", "skip_tokenizer_init", "load_format", "disable_log_stats",
    "stream_interval", "scheduling_policy", "max_num_queued_reqs", "max_num_queued_tokens",
    "speculative_config", "spec_method", "spec_model", "spec_tokens", "diffusion_config",
    "kv_transfer_config", "kv_offloading_size", "ec_transfer_config",
    "distributed_executor_backend", "worker_cls", "pipeline_parallel_size", "data_parallel_size",
    "prefill_context_parallel_size", "decode_context_parallel_size",
    "enable_sleep_mode", "enable_cumem_allocator",
)  # fmt: skip
"""Arguments that stepping vLLM by our driver depends on: a token a step of each request that
decodes, first come first served, in this process, with memory from PyTorch's allocator."""

NOT_FOLLOWED = {
    "batching": "continuous",
    "max_live_tokens": None,
    "on_oom": "queue",
    "empty_cache": "never",
    "activation_buckets": None,
    "temperature": 0.0,
    "one_at_a_time": False,
    "cache": None,
}
"""Settings of our own engine that vLLM has nothing for, as they must be left."""


@dataclass
class VllmSettings:
    """`mode`: no CUDA graphs; graphs of steps that only decode; or what vLLM does by itself,
    torch.compile and graphs of all steps. `python` is an environment's that has vLLM."""

    mode: str = "compiled"
    python: str | None = None
    untested: bool = False
    arguments: dict[str, Any] = field(default_factory=dict)


def check_vllm(config: Config, device: str) -> None:
    """Raises SettingError for what engine=vllm would not follow."""
    engine, vllm = config.engine, config.vllm
    choice("vllm.mode", vllm.mode, MODES)
    if device == "cpu":
        raise SettingError(
            "device=cpu: engine=vllm runs vLLM's CUDA build: take device=virtual, or device=cuda "
            "where there is a GPU."
        )
    for name, left in NOT_FOLLOWED.items():
        if getattr(engine, name) != left:
            raise SettingError(
                f"engine.{name}={getattr(engine, name)} is of fragbench's own engine: leave it at "
                f"{'null' if left is None else left} with engine=vllm."
            )
    if config.sources:
        raise SettingError(
            f"sources=[{','.join(config.sources)}] are for fragbench's own engine: leave them out "
            "with engine=vllm, which allocates what it allocates."
        )
    if config.driver.name != "inprocess":
        raise SettingError(
            f"driver={config.driver.name} serves fragbench's own engine: leave it out with "
            "engine=vllm, or send traffic to `vllm serve` with `fragbench load`."
        )
    if config.tensor_parallel != 1:
        raise SettingError(
            f"tensor_parallel={config.tensor_parallel}: engine=vllm runs on one GPU: set "
            "tensor_parallel=1, with a model or a card to match."
        )
    _check_dtypes(config)
    _check_arguments(vllm)


def _check_dtypes(config: Config) -> None:
    if config.weight_dtype not in ("fp16", "bf16"):
        raise SettingError(
            f"weight_dtype={config.weight_dtype}: engine=vllm has dummy weights of 16 bits: give "
            "fp16 or bf16."
        )
    if config.kv_dtype not in (config.weight_dtype, "fp8"):
        raise SettingError(
            f"kv_dtype={config.kv_dtype}: vLLM keeps K and V as the model's weights are, "
            f"{config.weight_dtype}, or in fp8: give one of these."
        )


def _check_arguments(vllm: VllmSettings) -> None:
    for name, value in vllm.arguments.items():
        if name in OWN_ARGUMENTS:
            raise SettingError(
                f"vllm.arguments.{name}={value} is said by {OWN_ARGUMENTS[name]}=, for all "
                "engines alike: set that."
            )
        if name in FIXED_ARGUMENTS:
            raise SettingError(
                f"vllm.arguments.{name}={value} is what stepping vLLM by our clock depends "
                "on: leave it out."
            )
        if name == "compilation_config" and vllm.mode == "graphs":
            raise SettingError(
                f"vllm.arguments.{name}={value} would stand for what vllm.mode=graphs says: set "
                "vllm.mode=compiled with it."
            )
