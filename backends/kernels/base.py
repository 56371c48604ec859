"""What attention over a paged KV cache reads: the cache of a layer, and the step's batch.

Every implementation has three functions: `store_kv` writes the new tokens' K and V, then
`paged_decode` (one query token a sequence) or `paged_prefill` (any number) reads through the block
tables. A slot is block x block_size + offset. Memory beyond a sequence's length is never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0
MIN_BLOCK_SIZE, MAX_BLOCK_SIZE = 8, 256


class KvCache(NamedTuple):
    """K and V of one layer, each [num_blocks, block_size, kv_heads, head_dim] in the model's dtype
    or float8_e4m3fn. Blocks may lie apart: both may be views of one buffer. An fp8 cache holds
    k / k_scale and v / v_scale, saturated at +-448.
    """

    keys: Tensor
    values: Tensor
    k_scale: float = 1.0
    v_scale: float = 1.0

    @property
    def block_size(self) -> int:
        """Tokens a block."""
        return self.keys.shape[1]

    @property
    def block_bits(self) -> int:
        """log2 of block_size: kernels shift and mask, and one compiled kernel serves all sizes."""
        return self.block_size.bit_length() - 1


class PagedBatch(NamedTuple):
    """The sequences of one step, their new tokens packed in one row without padding.

    block_tables: int32 [seqs, max_blocks], in the order of tokens; entries past a sequence's
    last block may be anything.
    context_lens: int32 [seqs], tokens to read, the new ones included.
    query_starts: int32 [seqs + 1], where each sequence's new tokens start, and where all end.
    slot_mapping: int64 [tokens], the slot of each new token; a negative one is not stored.
    longest_context and longest_query are in tokens, known on the host so that no launch waits for
    the GPU.
    """

    block_tables: Tensor
    context_lens: Tensor
    query_starts: Tensor
    slot_mapping: Tensor
    longest_context: int
    longest_query: int

    @classmethod
    def of(
        cls,
        tables: Sequence[Sequence[int]],
        context_lens: Sequence[int],
        query_lens: Sequence[int],
        block_size: int,
        device: torch.device | str = "cpu",
    ) -> PagedBatch:
        """The batch in which sequence i's last query_lens[i] of context_lens[i] tokens are new.

        tables[i] has the ids of its blocks, at least as many as its context needs.
        """
        padded = torch.zeros(len(tables), max(map(len, tables), default=0), dtype=torch.int32)
        for row, table in zip(padded, tables, strict=True):
            row[: len(table)] = torch.tensor(table, dtype=torch.int32)
        contexts = torch.tensor(context_lens, dtype=torch.int32)
        queries = torch.tensor(query_lens, dtype=torch.int64)
        starts = torch.cat([queries.new_zeros(1), queries.cumsum(0)])
        rows = torch.repeat_interleave(queries)
        positions = torch.arange(len(rows)) - (starts[1:] - contexts)[rows]
        blocks = padded[rows, positions // block_size].long()
        return cls(
            block_tables=padded.to(device),
            context_lens=contexts.to(device),
            query_starts=starts.int().to(device),
            slot_mapping=(blocks * block_size + positions % block_size).to(device),
            longest_context=max(context_lens, default=0),
            longest_query=max(query_lens, default=0),
        )


def as_stored(x: Tensor, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
    """K or V as a cache of this dtype holds it."""
    if dtype != FP8:
        return x
    # PyTorch's cast has not always saturated: it gave NaN.
    return (x.float() / scale).clamp(-FP8_MAX, FP8_MAX).to(FP8)
