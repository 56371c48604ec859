"""What tests run with either implementation: the first argument is its name."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from types import ModuleType
from typing import Literal
from unittest import mock

import torch

from bench.gpu_check.kernel_cases import Case, Problem, problem, reference, relative_error
from bench.gpu_check.kernel_errors import Attention, attention_error, store_differences

Name = Literal["torch", "triton"]


def implementation(name: Name, module: str) -> ModuleType:
    if name == "torch":
        from backends.kernels import torch_paged

        return torch_paged
    from backends.kernels import decode, prefill, store

    return {"decode": decode, "prefill": prefill, "store": store}[module]


def _decode(name: Name, splits: int | None) -> Attention:
    decode: Attention = implementation(name, "decode").paged_decode
    return decode if name == "torch" else partial(decode, splits=splits)


def decode_error(
    name: Name, case: Case, splits: int | None = None, native_fp8: bool = False
) -> float:
    """Relative error; with `native_fp8` the kernel reads FP8 as such, not as bytes."""
    with _native_fp8() if native_fp8 else nullcontext():
        return attention_error(_decode(name, splits), case)


def prefill_error(name: Name, case: Case, native_fp8: bool = False) -> float:
    """As decode_error."""
    with _native_fp8() if native_fp8 else nullcontext():
        return attention_error(implementation(name, "prefill").paged_prefill, case)


def _native_fp8() -> mock._patch[mock.MagicMock]:
    return mock.patch("backends.kernels.fp8.has_fp8", return_value=True)


def empty_contexts(name: Name, splits: int | None) -> tuple[float, float]:
    """Of a batch whose rows 0 and 2 are padding without a token to read: the largest number in
    those rows, and the relative error of row 1."""
    case = Case(context_lens=(1, 40, 1), query_lens=(1, 1, 1))
    given = problem(case)
    lens = torch.tensor([0, 40, 0], dtype=torch.int32)
    padded = Problem(given.q, given.cache, given.batch._replace(context_lens=lens), [], [])
    out = torch.full_like(padded.q, float("nan"))
    _decode(name, splits)(padded.q, padded.cache, padded.batch, case.scale, out=out)
    error = relative_error(out[1:2], reference(case, given)[1:2])
    return float(out[[0, 2]].abs().max()), error


def store_errors(name: Name, case: Case, skipped: tuple[int, ...]) -> list[str]:
    """As store_differences."""
    return store_differences(implementation(name, "store").store_kv, case, skipped)


def fp8_codes(name: Name, values: list[float]) -> tuple[list[int], list[float]]:
    """The kernels' FP8 codes of fp32 values, and the values of all 256 codes (Triton only)."""
    from tests.backends.kernels.fp8_kernels import decode_all, encode

    return encode(torch.tensor(values)).tolist(), decode_all().tolist()
