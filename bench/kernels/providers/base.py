"""What an implementation of decode attention is here: a module with a `prepare`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from bench.kernels.problem import Problem

Decode = Callable[[], Tensor]
"""Computes attention of a problem, [batch, heads, head_dim], from what was prepared. It can be
captured in a CUDA graph."""


class Unsupported(Exception):  # noqa: N818 - no fault of anyone's
    """An implementation does not take such a problem; the text says what it would take."""


class Prepare(Protocol):
    """Lays K and V out as the implementation reads them, in blocks of `block_size` tokens where it
    is paged (else None), and plans what it plans ahead. Raises Unsupported."""

    def __call__(self, problem: Problem, block_size: int | None) -> Decode: ...
