"""Kernels that do nothing but convert FP8, for test_fp8.py."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from backends.kernels.fp8 import decode_e4m3, encode_e4m3


@triton.jit
def _encode(source: tl.tensor, target: tl.tensor, count: tl.tensor, COLUMNS: tl.constexpr) -> None:  # noqa: N803
    columns = tl.arange(0, COLUMNS)
    values = tl.load(source + columns, mask=columns < count)
    tl.store(target + columns, encode_e4m3(values), mask=columns < count)


@triton.jit
def _decode(source: tl.tensor, target: tl.tensor) -> None:
    columns = tl.arange(0, 256)
    tl.store(target + columns, decode_e4m3(tl.load(source + columns)))


def encode(values: Tensor) -> Tensor:
    codes = torch.empty(len(values), dtype=torch.uint8)
    _encode[(1,)](values, codes, len(values), COLUMNS=triton.next_power_of_2(len(values)))
    return codes


def decode_all() -> Tensor:
    values = torch.empty(256, dtype=torch.float16)
    _decode[(1,)](torch.arange(256, dtype=torch.uint8), values)
    return values.float()
