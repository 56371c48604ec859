"""Attention of one new token a sequence, against float64; NaN stands where nobody may read."""

from __future__ import annotations

import pytest
import torch

from backends.kernels.base import FP8
from backends.kernels.decode import choose_splits
from bench.gpu_check.kernel_cases import LENGTHS, Case, name, variants
from tests.backends.kernels.conftest import Run
from tests.backends.kernels.jobs import decode_error, empty_contexts

ONE_EACH = (1,) * len(LENGTHS)
FEW = list(variants(LENGTHS, ONE_EACH, all_of_them=False))
FEW_SPLIT = list(zip(FEW, (1, 2, 3, 5, 8) * 6, strict=True))
ALL = list(variants(LENGTHS, ONE_EACH, all_of_them=True))


@pytest.mark.parametrize("case", ALL, ids=name)
def test_torch_agrees_with_float64(run_torch: Run, case: Case) -> None:
    assert run_torch(decode_error, case) <= case.tolerance


@pytest.mark.parametrize(
    ("case", "splits"), FEW_SPLIT, ids=[f"{name(case)}-{splits}" for case, splits in FEW_SPLIT]
)
def test_the_kernel_agrees_with_float64(run_triton: Run, case: Case, splits: int) -> None:
    assert run_triton(decode_error, case, splits) <= case.tolerance


@pytest.mark.long
@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("case", ALL, ids=name)
def test_every_variant_of_the_kernel_agrees(run_triton: Run, case: Case, splits: int) -> None:
    assert run_triton(decode_error, case, splits) <= case.tolerance


@pytest.mark.parametrize("length", LENGTHS)
def test_a_sequence_alone(run: Run, length: int) -> None:
    assert run(decode_error, Case((length,), (1,))) <= 1e-5


@pytest.mark.parametrize("splits", [2, 5, 64])
def test_splits_change_nothing(run_triton: Run, splits: int) -> None:
    """In 64 parts the sequence of 257 tokens leaves most of them empty."""
    assert run_triton(decode_error, Case((257, 1, 130), (1, 1, 1), heads=(4, 1)), splits) <= 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fp8_read_as_such(run_triton: Run, dtype: torch.dtype) -> None:
    case = Case((17, 40), (1, 1), dtype=dtype, cache_dtype=FP8, k_scale=0.25, v_scale=2.0)
    assert run_triton(decode_error, case, 2, True) <= case.tolerance


@pytest.mark.parametrize("heads", [(6, 2), (7, 1), (20, 1), (5, 5)])
def test_groups_of_no_power_of_two(run: Run, heads: tuple[int, int]) -> None:
    assert run(decode_error, Case((33, 7), (1, 1), heads=heads)) <= 1e-5


@pytest.mark.parametrize("head_dim", [8, 40, 256])
def test_unusual_head_dimensions(run: Run, head_dim: int) -> None:
    assert run(decode_error, Case((33, 7), (1, 1), head_dim=head_dim)) <= 1e-5


@pytest.mark.parametrize("splits", [1, 4])
def test_padding_without_a_token_to_read_gives_zeros(run: Run, splits: int) -> None:
    largest, error = run(empty_contexts, splits)
    assert largest == 0
    assert error <= 1e-5


def test_no_sequences(run: Run) -> None:
    assert run(decode_error, Case((), ())) == 0


def test_sequences_are_split_until_the_gpu_is_full_in_parts_of_256_tokens() -> None:
    """132 multiprocessors take 264 programs: 8 KV heads of one sequence want 33 parts each."""
    assert choose_splits(1, 8, 100_000, 132) == 33
    assert choose_splits(1, 8, 2560, 132) == 10
    assert choose_splits(32, 8, 100_000, 132) == 2
    assert choose_splits(33, 8, 100_000, 132) == 1
    assert choose_splits(1, 1, 300, 132) == 1
    assert choose_splits(1, 1, 1_000_000, 132) == 64
