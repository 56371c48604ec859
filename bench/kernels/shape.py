"""What is measured: decode attention of one layer, one new token a sequence."""

from __future__ import annotations

from dataclasses import dataclass

from bench.model.shape import BYTES_PER_ELEMENT


@dataclass(frozen=True, slots=True)
class Shape:
    """`batch` sequences of `context` tokens each. `dtype` is that of K and V: bf16, fp16 or fp8,
    with queries in bf16 beside fp8."""

    batch: int
    context: int
    heads: int
    kv_heads: int
    head_dim: int
    dtype: str

    @property
    def kv_bytes(self) -> int:
        """K and V of the layer, each read once: what a decode kernel must read at least, beside
        queries and block tables."""
        elements = 2 * self.batch * self.context * self.kv_heads * self.head_dim
        return int(elements * BYTES_PER_ELEMENT[self.dtype])
