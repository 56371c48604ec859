"""vLLM's engine in this process: made from a configuration, given requests, stepped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import vllm.envs
from vllm import EngineArgs, LLMEngine, SamplingParams
from vllm.compilation.counter import compilation_counter
from vllm.sampling_params import RequestOutputKind

from bench.config import Config
from bench.engine.scheduler import Limits
from bench.engine.sequence import Sequence
from bench.errors import SettingError
from bench.vllm.model_config import model_config
from bench.vllm.observed import ObservedScheduler
from bench.vllm.pool import VllmPool

DTYPES = {"fp16": "float16", "bf16": "bfloat16"}
MODE_ARGUMENTS: dict[str, dict[str, Any]] = {
    "eager": {"enforce_eager": True},
    "graphs": {"compilation_config": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}},
    "compiled": {},
}


class VllmSession:
    """vLLM, stepped through LLMEngine: one step is what its scheduler plans, computed and sampled.

    Its scheduler is vLLM's own, watched (`scheduler`). Async scheduling, which plans a step before
    the last one's tokens are known, is off: our clock has one step at a time.
    """

    def __init__(self, config: Config, pool: VllmPool, limits: Limits, blocks: int | None) -> None:
        """Loads the model, profiles, takes the KV cache and captures graphs as vLLM does; `blocks`
        is the number of its blocks, None for as many as utilization leaves.

        Raises SettingError for what vLLM cannot start with.
        """
        arguments = engine_arguments(config, pool, limits, blocks)
        with tempfile.TemporaryDirectory(prefix="fragbench-model-") as folder:
            if config.model.checkpoint is None:
                Path(folder, "config.json").write_text(json.dumps(model_config(config.model)))
            with _interruptible(folder):
                model = Path(config.model.checkpoint or folder).expanduser()
                self._engine = _start(str(model), arguments)
        self.scheduler = ObservedScheduler.latest
        _check_blocks(self.scheduler, config, pool.block_tokens)
        self.pool = pool
        pool.blocks = self.scheduler
        self.said: dict[int, list[int]] = {}
        """The ids that each request got in the last step."""

    def add(self, sequence: Sequence) -> None:
        """Queues a request."""
        assert sequence.text is not None, "vLLM needs the tokens' ids"
        ids = np.frombuffer(sequence.text(0, sequence.demand.prompt_tokens), dtype=np.int32)
        prompt: dict[str, Any] = {"prompt_token_ids": ids.tolist()}
        if sequence.demand.cache_salt:
            prompt["cache_salt"] = sequence.demand.cache_salt
        parameters = SamplingParams(
            temperature=0,
            max_tokens=sequence.demand.output_tokens,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        name = self._engine.add_request(str(sequence.id), prompt, parameters)
        self.scheduler.vllm_ids[sequence.id] = name

    def abort(self, sequence: Sequence) -> None:
        """Ends a request that has not ended by itself; its blocks are free at once."""
        self._engine.abort_request([str(sequence.id)])
        del self.scheduler.vllm_ids[sequence.id]

    def step(self) -> None:
        """One step of vLLM. Raises torch.OutOfMemoryError, after which it cannot go on."""
        outputs = self._engine.step()
        self.said = {int(each.request_id): each.outputs[0].token_ids for each in outputs}
        for each in outputs:
            if each.finished:
                del self.scheduler.vllm_ids[int(each.request_id)]

    def worker_facts(self) -> dict[str, int]:
        """What vLLM's worker found when it divided memory, in bytes, and how many graphs it
        captured."""
        (facts,) = self._engine.collective_rpc(_memory_found)
        return dict(facts)

    def metrics(self) -> dict[str, float]:
        """vLLM's own counters and gauges, by name without their prefix."""
        values = ((each.name, getattr(each, "value", None)) for each in self._engine.get_metrics())
        return {name.removeprefix("vllm:"): value for name, value in values if value is not None}


def engine_arguments(
    config: Config, pool: VllmPool, limits: Limits, blocks: int | None
) -> dict[str, Any]:
    """EngineArgs of a configuration."""
    return {
        "load_format": "dummy" if config.model.checkpoint is None else "auto",
        "skip_tokenizer_init": True,
        "seed": config.seed,
        "dtype": DTYPES[config.weight_dtype],
        "kv_cache_dtype": "fp8" if config.kv_dtype == "fp8" else "auto",
        "max_model_len": config.max_model_len,
        "gpu_memory_utilization": config.utilization,
        "num_gpu_blocks_override": blocks,
        "block_size": pool.block_tokens,
        "watermark": pool.watermark,
        "enable_prefix_caching": pool.caches_prefixes,
        "enable_chunked_prefill": limits.prefill == "chunked",
        "max_num_batched_tokens": limits.token_budget,
        "max_num_seqs": limits.max_num_seqs,
        "scheduler_reserve_full_isl": limits.admit_whole_prompt,
        "scheduler_cls": ObservedScheduler,
        "worker_cls": "bench.vllm.worker.SizedWorker",
        "async_scheduling": False,
        "disable_log_stats": False,
        **MODE_ARGUMENTS[config.vllm.mode],
        **config.vllm.arguments,
    }


@contextmanager
def _interruptible(folder: str) -> Iterator[None]:
    """Ctrl-C ends the process at once, which has nothing to write yet: vLLM would first wait for
    its threads, which compile."""

    def leave(number: int, frame: object) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(128 + number)

    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _start(model: str, arguments: dict[str, Any]) -> LLMEngine:
    """Raises SettingError for what vLLM refuses; anything else that it dies of is the run's end,
    and its traceback in run.log."""
    try:
        return LLMEngine.from_engine_args(EngineArgs(model=model, **arguments))
    except (TypeError, ValueError, NotImplementedError, torch.OutOfMemoryError) as error:
        what = " ".join(str(error).split()) or type(error).__name__
        raise SettingError(f"engine=vllm cannot start with these settings: {what}") from error


def _check_blocks(scheduler: ObservedScheduler, config: Config, block_tokens: int) -> None:
    """Raises SettingError for blocks of another kind than what is counted."""
    block_bytes = block_tokens * config.model.kv_bytes_per_token(config.kv_dtype, 1)
    if (found := scheduler.kinds_of_blocks) != [(block_tokens, block_bytes)]:
        raise SettingError(
            f"engine=vllm: with these settings vLLM has blocks of {found} tokens and bytes, and "
            f"those of backend.block_size={block_tokens} and kv_dtype={config.kv_dtype} are "
            f"followed, {block_bytes} bytes each: leave out what of vllm.arguments changes them."
        )


def _memory_found(worker: Any) -> dict[str, int]:
    graphs = 0
    if vllm.envs.VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS:  # and it is in the peak
        graphs = int(worker.cudagraph_memory_estimate)
    return {
        "weights_bytes": int(worker.model_runner.model_memory_usage),
        "activation_peak_bytes": int(worker.peak_activation_memory) - graphs,
        "graphs_estimate_bytes": graphs,
        "beside_allocator_bytes": int(worker.init_snapshot.non_torch_memory),
        "graphs": int(compilation_counter.num_cudagraph_captured),
    }
