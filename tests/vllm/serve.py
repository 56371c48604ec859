"""A program that serves a few requests with an unmodified vLLM and prints what it saw as JSON.

    python serve.py MODEL_FOLDER '{"requests": 8, "engine": {"enforce_eager": true}}'

The settings in the environment are those that the virtual GPU needs (docs/virtual_gpu.md).
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC": "0",
}


def serve(
    model: str,
    *,
    requests: int,
    prompt_tokens: int = 100,
    output_tokens: int = 32,
    engine: dict[str, Any],
) -> dict[str, Any]:
    """Serves requests that all come at once; `engine` holds arguments of vLLM's LLM."""
    import torch
    from vllm import LLM, SamplingParams

    settings = {
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "max_model_len": 256,
        "seed": 0,
        "gpu_memory_utilization": 0.75,
        "enable_prefix_caching": False,
        "disable_log_stats": False,
    }
    llm = LLM(model, **settings | engine)
    sampling = SamplingParams(
        temperature=0, max_tokens=output_tokens, ignore_eos=True, detokenize=False
    )
    for number in range(requests):
        prompt = [5 + (7 * number + place) % 200 for place in range(prompt_tokens)]
        llm.llm_engine.add_request(str(number), {"prompt_token_ids": prompt}, sampling)
    steps, lengths = 0, []
    while llm.llm_engine.has_unfinished_requests():
        steps += 1
        outputs = llm.llm_engine.step()
        lengths += [len(each.outputs[0].token_ids) for each in outputs if each.finished]
    metrics = {each.name: each for each in llm.get_metrics()}
    cache = llm.llm_engine.vllm_config.cache_config
    return {
        "blocks": cache.num_gpu_blocks,
        "block_tokens": cache.block_size,
        "steps": steps,
        "lengths": lengths,
        "preemptions": metrics["vllm:num_preemptions"].value,
        "reserved_bytes": torch.cuda.memory_reserved(),
        "allocations": torch.cuda.memory_stats()["allocation.all.allocated"],
    }


if __name__ == "__main__":
    os.environ |= ENVIRONMENT
    print("found", json.dumps(serve(sys.argv[1], **json.loads(sys.argv[2]))))
