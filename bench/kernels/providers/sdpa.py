"""torch.nn.functional.scaled_dot_product_attention over contiguous K and V, in the layout of our
contiguous buffers; torch picks the kernel."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from bench.kernels.problem import Problem
from bench.kernels.providers.base import Decode, Unsupported


def prepare(problem: Problem, block_size: int | None) -> Decode:
    """A bench.kernels.providers.base.Prepare."""
    assert block_size is None
    if problem.keys.dtype != problem.q.dtype:
        raise Unsupported("SDPA takes K and V in the queries' dtype only")
    q = problem.q[:, :, None]
    keys, values = problem.keys.transpose(1, 2), problem.values.transpose(1, 2)
    grouped = problem.shape.heads != problem.shape.kv_heads

    def decode() -> Tensor:
        attended = functional.scaled_dot_product_attention(
            q, keys, values, scale=problem.scale, enable_gqa=grouped
        )
        return attended[:, :, 0]

    return decode
