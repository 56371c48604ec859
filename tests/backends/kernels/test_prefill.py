"""Causal attention of new tokens over prefix and themselves, against float64."""

from __future__ import annotations

import pytest
import torch

from backends.kernels.base import FP8
from bench.gpu_check.kernel_cases import LENGTHS, Case, name, variants
from tests.backends.kernels.conftest import Run
from tests.backends.kernels.jobs import prefill_error

CONTEXTS, QUERIES = (1, 15, 16, 33, 130, 257), (1, 15, 1, 16, 5, 17)
FEW = list(variants(CONTEXTS, QUERIES, all_of_them=False))
ALL = list(variants(CONTEXTS, QUERIES, all_of_them=True))


@pytest.mark.parametrize("case", ALL, ids=name)
def test_torch_agrees_with_float64(run_torch: Run, case: Case) -> None:
    assert run_torch(prefill_error, case) <= case.tolerance


@pytest.mark.parametrize("case", FEW, ids=name)
def test_the_kernel_agrees_with_float64(run_triton: Run, case: Case) -> None:
    assert run_triton(prefill_error, case) <= case.tolerance


@pytest.mark.long
@pytest.mark.parametrize("case", ALL, ids=name)
def test_every_variant_of_the_kernel_agrees(run_triton: Run, case: Case) -> None:
    assert run_triton(prefill_error, case) <= case.tolerance


@pytest.mark.parametrize("length", LENGTHS)
def test_a_prompt_alone(run: Run, length: int) -> None:
    assert run(prefill_error, Case((length,), (length,))) <= 1e-5


@pytest.mark.parametrize("prefix", [1, 15, 16, 17, 255, 256, 257])
def test_a_chunk_behind_its_prefix(run: Run, prefix: int) -> None:
    assert run(prefill_error, Case((prefix + 20,), (20,))) <= 1e-5


def test_a_sequence_without_new_tokens(run: Run) -> None:
    assert run(prefill_error, Case((20, 30, 7), (3, 0, 7))) <= 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fp8_read_as_such(run_triton: Run, dtype: torch.dtype) -> None:
    case = Case((17, 40), (17, 5), dtype=dtype, cache_dtype=FP8, k_scale=0.25, v_scale=2.0)
    assert run_triton(prefill_error, case, True) <= case.tolerance


@pytest.mark.parametrize("heads", [(6, 2), (7, 1), (20, 1), (5, 5)])
def test_groups_of_no_power_of_two(run: Run, heads: tuple[int, int]) -> None:
    assert run(prefill_error, Case((33, 37), (21, 37), heads=heads)) <= 1e-5


@pytest.mark.parametrize("head_dim", [8, 40, 256])
def test_unusual_head_dimensions(run: Run, head_dim: int) -> None:
    assert run(prefill_error, Case((33, 7), (10, 7), head_dim=head_dim)) <= 1e-5


def test_no_sequences(run: Run) -> None:
    assert run(prefill_error, Case((), ())) == 0
