"""Ragged batches in plain torch: groups, pieces and padding must not show."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.kernels import sdpa, torch_paged
from bench.gpu_check.kernel_cases import Case, problem, reference, relative_error
from tests.backends.kernels.jobs import prefill_error

lengths = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 90)), max_size=6)


@settings(deadline=None, max_examples=40)
@given(
    lengths,
    st.sampled_from([8, 16, 64]),
    st.sampled_from([(1, 1), (4, 2), (6, 3)]),
    st.integers(1, 24),
    st.integers(0, 20),
    st.integers(0, 2**32),
)
def test_any_ragged_batch(
    lengths: list[tuple[int, int]],
    block_size: int,
    heads: tuple[int, int],
    piece: int,
    bits: int,
    seed: int,
) -> None:
    """Pieces of a few tokens, and groups of few elements or many, so that batches of any shape are
    cut, split and padded."""
    case = Case(
        tuple(prefix + new for prefix, new in lengths if prefix + new),
        tuple(new for prefix, new in lengths if prefix + new),
        block_size,
        heads,
        head_dim=8,
        seed=seed,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sdpa, "PIECE_TOKENS", piece)
        patch.setattr(torch_paged, "GROUP_ELEMENTS", 1 << bits)
        assert prefill_error("torch", case) <= case.tolerance


def test_long_prompts_are_cut_and_decode_rows_mixed_in() -> None:
    case = Case((700, 300, 300, 257, 513), (700, 1, 1, 256, 257), heads=(2, 1), head_dim=8)
    assert prefill_error("torch", case) <= case.tolerance


@pytest.mark.parametrize("contexts", [(30, 40, 17, 33), (30, 0, 40, 5)])
def test_short_sequences_are_computed_together(contexts: tuple[int, ...]) -> None:
    """Also one without a token to read, whose row is zero."""
    case = Case(tuple(max(1, context) for context in contexts), (1,) * len(contexts))
    given_ = problem(case)
    read = given_.batch.context_lens.new_tensor(contexts)
    batch = given_.batch._replace(context_lens=read)
    with mock.patch.object(torch_paged, "attend_consecutive") as alone:
        out = torch_paged.paged_decode(given_.q, given_.cache, batch, case.scale)
    alone.assert_not_called()
    reads = read > 0
    assert not out[~reads].any()
    assert relative_error(out[reads], reference(case, given_)[reads]) <= case.tolerance


def test_only_short_sequences_with_like_numbers_of_new_tokens_share_a_group() -> None:
    queries, contexts = [1, 1, 33, 64, 1000, 999, 0, 1], [1, 1000, 40, 64, 1000, 1000, 50, 20]
    groups = list(torch_paged._groups(queries, contexts, kv_width=64))
    assert sorted(groups) == [[0, 7], [1], [2], [3], [4], [5]]  # nothing is asked of 6


def test_table_entries_past_the_context_may_be_anything() -> None:
    case = Case((20, 3), (1, 1))
    given_ = problem(case)
    given_.batch.block_tables[0, 2:] = 2**31 - 1
    given_.batch.block_tables[1, 1:] = -7
    out = torch_paged.paged_decode(given_.q, given_.cache, given_.batch, case.scale)
    assert relative_error(out, reference(case, given_)) <= 1e-5
