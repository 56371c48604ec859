"""Runs jobs in a process whose Triton kernels are interpreted, in numpy."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any


@contextmanager
def interpreting_process() -> Iterator[ProcessPoolExecutor]:
    """One fresh process: Triton decides when it is imported whether kernels are compiled."""
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_interpret)
    with pool:
        yield pool


def _interpret() -> None:
    os.environ["TRITON_INTERPRET"] = "1"
    warnings.simplefilter("error")
    import numpy as np
    import torch
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    torch.set_num_threads(1)
    plain_cast, plain_dot = InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot

    def cast(self: Any, source: Any, target: Any) -> Any:
        """Triton 3.8's own rounding to bf16 loses the carry: 1.9999 becomes 1.0, not 2.0."""
        if (source.dtype.scalar, target.scalar) != (tl.float32, tl.bfloat16):
            return plain_cast(self, source, target)
        rounded = torch.from_numpy(np.ascontiguousarray(source.data)).bfloat16()
        return TensorHandle(rounded.view(torch.uint16).numpy(), tl.bfloat16)

    def dot(self: Any, a: Any, b: Any, acc: Any, *options: Any) -> Any:
        """Triton 3.8's own multiplies the bits of bf16 numbers as if they were integers."""
        if a.dtype.scalar == tl.bfloat16:
            a, b = (plain_cast(self, each, tl.float32) for each in (a, b))
        return plain_dot(self, a, b, acc, *options)

    InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot = cast, dot
