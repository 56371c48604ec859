"""C code for the CUDA functions that the virtual GPU does not have.

A program that calls one would otherwise end at a symbol that nobody defines, or reach the real
library, which finds no driver or a handle that it did not make. Each is made weak: what the virtual
GPU does have comes first.
"""

from __future__ import annotations

import re

HEADERS = """
#include <cuda.h>
#include <cuda_runtime_api.h>
#if __has_include(<cublasLt.h>)
#define __CUDA_FP16_H__ /* these two need headers that PyTorch's wheel does not bring */
#define __CUDA_BF16_H__
#include <cublas_v2.h>
#include <cublasLt.h>
#endif
"""
"""What declares them. Macros in it give functions the names that they are exported under."""

_NOT_SUPPORTED = {
    "CUresult": "ERROR_NOT_SUPPORTED",
    "cudaError_t": "ERROR_NOT_SUPPORTED",
    "cublasStatus_t": "CUBLAS_NOT_SUPPORTED",
}
_DECLARATION = re.compile(rf"\b({'|'.join(_NOT_SUPPORTED)})\s+(cu(?:da|blas)?[A-Z]\w*)\s*\(")


def stand_ins(preprocessed: str) -> str:
    """A source file in which every function that preprocessed headers declare is refused."""
    kinds = {name: kind for kind, name in _DECLARATION.findall(preprocessed)}
    lines = [
        f"__attribute__((weak)) REFUSE({name}, {_NOT_SUPPORTED[kind]})"
        for name, kind in sorted(kinds.items())
    ]
    return "\n".join(['#include "virtual_gpu.h"', *lines, ""])
