"""FP8 e4m3 values as bytes, for cards whose Triton has no such type (before sm_89).

Integer arithmetic on the bits: one code on every card, and the same result as PyTorch's casts but
for what is beyond 448, which saturates. Format: Micikevicius et al., 2022, "FP8 Formats for Deep
Learning", section 3.
"""

# mypy: disable-error-code="import-untyped,untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

NATIVE_SINCE = (8, 9)


def readable(cache: Tensor) -> Tensor:
    """The cache as a kernel can read it: FP8 as bytes where the card has no FP8."""
    if cache.dtype != torch.float8_e4m3fn or has_fp8(cache.device):
        return cache
    return cache.view(torch.uint8)


def has_fp8(device: torch.device) -> bool:
    """Whether the GPU converts FP8 itself (Ada, Hopper and later)."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= NATIVE_SINCE


@triton.jit
def decode_e4m3(code: tl.tensor) -> tl.tensor:
    """fp16 values of uint8 codes. The fields move as they are, subnormals too; fp16's exponent is
    biased by 15 and e4m3's by 7, hence 2^8."""
    code = code.to(tl.uint16)
    bits = ((code & 0x80) << 8) | ((code & 0x7F) << 7)
    value = bits.to(tl.float16, bitcast=True) * 256.0
    return tl.where((code & 0x7F) == 0x7F, float("nan"), value).to(tl.float16)


@triton.jit
def encode_e4m3(value: tl.tensor) -> tl.tensor:
    """uint8 codes of fp32 values: nearest, ties to even, saturated at +-448; NaN stays NaN."""
    bits = value.to(tl.uint32, bitcast=True)
    size = bits & 0x7FFFFFFF
    saturated = tl.minimum(size, 0x43E00000)  # 448
    rounded = saturated + 0x7FFFF + ((saturated >> 20) & 1)  # 20 of 23 mantissa bits go
    normal = (rounded >> 20) - (120 << 3)  # fp32's exponent is biased by 127, e4m3's by 7
    # Below 2^-6 values are multiples of 2^-9, which is the last place of fp32 numbers near 2^14.
    near = saturated.to(tl.float32, bitcast=True) + 16384.0
    subnormal = near.to(tl.uint32, bitcast=True) - 0x46800000
    code = tl.where(saturated < 0x3C800000, subnormal, normal)
    code = tl.where(size > 0x7F800000, 0x7F, code)
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)
