"""Ragged batches in plain torch: pieces, groups and padding must not show."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.kernels import torch_paged
from backends.kernels.base import PagedBatch
from tests.backends.kernels.cases import Case, problem, reference, relative_error
from tests.backends.kernels.jobs import prefill_error

lengths = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 90)), max_size=6)


@settings(deadline=None, max_examples=40)
@given(
    lengths,
    st.sampled_from([8, 16, 64]),
    st.sampled_from([(1, 1), (4, 2), (6, 3)]),
    st.integers(1, 24),
    st.integers(0, 2**32),
)
def test_any_ragged_batch(
    lengths: list[tuple[int, int]], block_size: int, heads: tuple[int, int], piece: int, seed: int
) -> None:
    """Pieces of a few tokens and groups of a few elements, so that batches of any shape are cut
    and split."""
    case = Case(
        tuple(prefix + new for prefix, new in lengths if prefix + new),
        tuple(new for prefix, new in lengths if prefix + new),
        block_size,
        heads,
        head_dim=8,
        seed=seed,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_paged, "PIECE_TOKENS", piece)
        patch.setattr(torch_paged, "GROUP_ELEMENTS", 1 << 12)
        assert prefill_error("torch", case) <= case.tolerance


def test_long_prompts_are_cut_and_decode_rows_mixed_in() -> None:
    case = Case((700, 300, 300, 257, 513), (700, 1, 1, 256, 257), heads=(2, 1), head_dim=8)
    assert prefill_error("torch", case) <= case.tolerance


def test_rows_of_a_group_stay_within_twice_each_others_length() -> None:
    batch = PagedBatch.of(
        [[0] * 64] * 6, [1, 1000, 40, 500, 1000, 1000], [1, 1, 33, 64, 1000, 999], 16
    )
    pieces = torch_paged._cut(batch)
    seen: list[int] = []
    for members in torch_paged._groups(pieces, kv_width=64):
        seen += members.tolist()
        sizes, stops = pieces.sizes[members], pieces.stops[members].clamp(min=256)
        assert sizes.max() < 2 * sizes.min()
        assert stops.max() < 2 * stops.min()
    assert sorted(seen) == list(range(len(pieces.sizes)))
    assert pieces.sizes.sum() == 1 + 1 + 33 + 64 + 1000 + 999


def test_table_entries_past_the_context_may_be_anything() -> None:
    case = Case((20, 3), (1, 1))
    given_ = problem(case)
    given_.batch.block_tables[0, 2:] = 2**31 - 1
    given_.batch.block_tables[1, 1:] = -7
    out = torch_paged.paged_decode(given_.q, given_.cache, given_.batch, case.scale)
    assert relative_error(out, reference(case, given_)) <= 1e-5
