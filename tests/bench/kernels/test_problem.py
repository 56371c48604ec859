"""The data that is measured on: the same in every layout, and a reference that is right."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from backends.kernels import torch_paged
from bench.kernels.problem import (
    TOLERANCES,
    Problem,
    make_problem,
    paged,
    reference,
    relative_error,
)
from bench.kernels.shape import Shape

DTYPES = ("bf16", "fp16", "fp8")


def shape(dtype: str = "bf16", batch: int = 3, context: int = 37) -> Shape:
    return Shape(batch, context, heads=8, kv_heads=2, head_dim=16, dtype=dtype)


def attention_float64(problem: Problem) -> Tensor:
    """Independent of reference(): SDPA in float64 with repeated KV heads."""
    keys = (problem.keys.double() * problem.k_scale).repeat_interleave(4, dim=2)
    values = problem.values.double().repeat_interleave(4, dim=2)
    attended = functional.scaled_dot_product_attention(
        problem.q.double()[:, :, None], keys.transpose(1, 2), values.transpose(1, 2)
    )
    return attended[:, :, 0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_reference_is_attention(dtype: str) -> None:
    problem = make_problem(shape(dtype), "cpu")
    assert problem.keys.element_size() == (1 if dtype == "fp8" else 2)
    assert relative_error(reference(problem), attention_float64(problem).float()) < 1e-5


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", [8, 16, 64])
def test_the_pool_holds_every_token_where_its_table_says(dtype: str, block_size: int) -> None:
    problem = make_problem(shape(dtype), "cpu")
    given = paged(problem, block_size)
    for seq, table in enumerate(given.batch.block_tables.tolist()):
        for position in range(37):
            block, offset = table[position // block_size], position % block_size
            for part, rows in enumerate((problem.keys, problem.values)):
                found = given.pool[block, part, offset].float()
                assert torch.equal(found, rows[seq, position].float())
    assert given.pool.shape[0] == 3 * -(-37 // block_size)
    assert given.batch.context_lens.tolist() == [37] * 3
    assert given.batch.longest_context == 37


def test_blocks_lie_shuffled() -> None:
    given = paged(make_problem(shape(batch=4, context=1024), "cpu"), 8)
    ids = given.batch.block_tables.flatten()
    assert sorted(ids.tolist()) == list(range(4 * 128))
    neighbours = int((ids.diff() == 1).sum())
    assert neighbours < 10  # of 511, about one by chance


@pytest.mark.parametrize("dtype", DTYPES)
def test_torchs_paged_attention_agrees(dtype: str) -> None:
    problem = make_problem(shape(dtype), "cpu")
    given = paged(problem, 16)
    found = torch_paged.paged_decode(problem.q, given.cache, given.batch, problem.scale)
    assert relative_error(found, reference(problem)) <= TOLERANCES[dtype]


def test_an_error_is_of_the_worst_vector_and_nan_is_one() -> None:
    expected = torch.tensor([[[2.0, -4.0]], [[1.0, 0.5]]])
    found = expected.clone()
    found[1, 0, 1] += 0.25
    assert relative_error(found, expected) == 0.25
    found[0, 0, 0] = float("nan")
    assert not relative_error(found, expected) <= 1e9
