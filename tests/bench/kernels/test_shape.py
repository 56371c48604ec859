"""How many bytes a decode reads."""

from __future__ import annotations

import pytest

from bench.kernels.shape import Shape


@pytest.mark.parametrize(("dtype", "element_bytes"), [("bf16", 2), ("fp16", 2), ("fp8", 1)])
def test_k_and_v_of_every_token_and_kv_head_count_once(dtype: str, element_bytes: int) -> None:
    """Llama-3-8B has 131,072 bytes a token in 32 layers at 16 bits (docs: KV bytes per token):
    4,096 a layer."""
    shape = Shape(batch=3, context=1000, heads=32, kv_heads=8, head_dim=128, dtype=dtype)
    assert shape.kv_bytes == 3 * 1000 * 131_072 // 32 * element_bytes // 2
