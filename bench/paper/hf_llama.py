"""An unmodified Hugging Face Llama that decodes static batches, one after another.

Runs in a process of its own on the virtual GPU. Kernels do nothing there: weights and tokens are
whatever memory holds, and what is allocated does not depend on them.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import transformers

from bench.errors import SettingError
from bench.model.shape import ModelShape
from bench.paper.hf_batches import StepMemory, padded, read_setup

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def decode(payload: dict[str, Any]) -> dict[str, Any]:
    """`payload`: read_setup's, and cache (DynamicCache or StaticCache). The weights' bytes, the
    library's version, and StepMemory's steps. Raises SettingError."""
    torch.set_grad_enabled(False)
    setup = read_setup(payload)
    torch.set_default_dtype(DTYPES[setup.config.weight_dtype])
    try:
        with torch.device("cuda"):
            model: Any = transformers.LlamaForCausalLM(_config(setup.config.model))
            model.eval()
        memory = StepMemory()
        for number, batch in enumerate(setup.batches):
            cache = _cache(payload["cache"], model, setup.config.max_model_len)
            _decode(model, cache, len(batch), *padded(batch), memory, number)
            del cache
    except torch.OutOfMemoryError as error:
        raise SettingError(
            f"model={setup.config.model.name} and its batches do not fit gpu="
            f"{setup.config.gpu.name} with {payload['cache']}: choose a larger gpu."
        ) from error
    weights = sum(each.numel() * each.element_size() for each in model.parameters())
    return {
        "weights_bytes": weights,
        "version": transformers.__version__,
        "steps": memory.steps,
    }


def _config(shape: ModelShape) -> Any:
    """Rotary bases are left out: they change no size."""
    return transformers.LlamaConfig(
        num_hidden_layers=shape.layers,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocab_size,
        max_position_embeddings=shape.max_model_len,
        tie_word_embeddings=shape.tied_embeddings,
    )


def _cache(name: str, model: Any, max_cache_len: int) -> Any:
    if name == "StaticCache":
        return transformers.StaticCache(config=model.config, max_cache_len=max_cache_len)
    return transformers.DynamicCache(config=model.config)


def _decode(
    model: Any,
    cache: Any,
    size: int,
    prompt_tokens: int,
    output_tokens: int,
    memory: StepMemory,
    number: int,
) -> None:
    """Greedy decoding, as `generate` does it: prompts padded to one length, the last position's
    logits alone, a mask that grows. (`generate` itself would read from the GPU when to stop.)"""
    token_ids = torch.zeros(size, prompt_tokens, dtype=torch.int64, device="cuda")
    mask = torch.ones_like(token_ids)
    caching = {_cache_argument(model): cache}
    for _ in range(output_tokens):
        output = model(input_ids=token_ids, attention_mask=mask, logits_to_keep=1, **caching)
        token_ids = output.logits[:, -1].argmax(dim=-1, keepdim=True)
        del output
        mask = torch.cat([mask, torch.ones_like(token_ids)], dim=1)
        memory.read(number)


def _cache_argument(model: Any) -> str:
    """It was renamed in transformers 5."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
