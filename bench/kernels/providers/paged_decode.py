"""Our Triton kernel, backends/kernels/decode.py."""

from __future__ import annotations

import torch
from torch import Tensor

from backends.kernels.decode import paged_decode
from bench.kernels.problem import Problem, paged
from bench.kernels.providers.base import Decode


def prepare(problem: Problem, block_size: int | None) -> Decode:
    """A bench.kernels.providers.base.Prepare."""
    assert block_size is not None
    given = paged(problem, block_size)
    out = torch.empty_like(problem.q)

    def decode() -> Tensor:
        return paged_decode(problem.q, given.cache, given.batch, problem.scale, out=out)

    return decode
