"""The kernel that vLLM reads its paged cache with by default on NVIDIA cards: its build of
FlashAttention (version 3 on Hopper, else 2 or 4, as vLLM itself chooses), through block tables.
Written for vLLM 0.8 to 0.30."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import Tensor

from bench.kernels.problem import Problem, paged
from bench.kernels.providers.base import Decode, Unsupported

BLOCK_MULTIPLE = 16
VERSION_CHOOSERS = (
    "vllm.v1.attention.backends.fa_utils",
    "vllm.attention.utils.fa_utils",
    "vllm.vllm_flash_attn.fa_utils",
)
"""Where get_flash_attn_version is: since 0.15, since 0.9, and before."""


def prepare(problem: Problem, block_size: int | None) -> Decode:
    """A bench.kernels.providers.base.Prepare."""
    assert block_size is not None
    if block_size % BLOCK_MULTIPLE:
        raise Unsupported(f"vLLM's kernel takes blocks of a multiple of {BLOCK_MULTIPLE} tokens")
    if problem.keys.dtype != problem.q.dtype:
        raise Unsupported("vLLM's kernel reads FP8 with FP8 queries only")
    given = paged(problem, block_size)
    attention: Any = import_module("vllm.vllm_flash_attn")
    version = _flash_attention_version()

    def decode() -> Tensor:
        out: Tensor = attention.flash_attn_varlen_func(
            q=problem.q,
            k=given.cache.keys,
            v=given.cache.values,
            max_seqlen_q=1,
            cu_seqlens_q=given.batch.query_starts,
            max_seqlen_k=problem.shape.context,
            seqused_k=given.batch.context_lens,
            block_table=given.batch.block_tables,
            softmax_scale=problem.scale,
            causal=True,
            fa_version=version,
        )
        return out

    return decode


def _flash_attention_version() -> int:
    for place in VERSION_CHOOSERS:
        try:
            chooser: Any = import_module(place)
        except ModuleNotFoundError:
            continue
        version = chooser.get_flash_attn_version()
        if version is not None:
            return int(version)
        break
    raise Unsupported("vLLM finds no FlashAttention for this card")
