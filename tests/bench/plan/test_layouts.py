"""What layouts hold for given lengths: sums by hand, and against every step counted out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.plan.layouts import BLOCKS, BUCKETS, LAYOUTS, RESERVED, Lengths, buckets, held

MAX_MODEL_LEN = 1000
Requests = list[tuple[int, int, int]]


def lengths(*requests: Sequence[int]) -> Lengths:
    """Of requests of a prompt, an output and so many branches (1)."""
    rows = [(*request, 1)[:3] for request in requests]
    return Lengths(*(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)))


def test_a_request_holds_what_it_has_in_each_of_its_steps() -> None:
    # Live in its five steps: 126, 127, 128, 129 and 130 tokens.
    found = held(lengths((126, 5)), MAX_MODEL_LEN)
    assert (found.steps, found.live) == (5, 640)
    assert found.held == {
        RESERVED: 5 * 1000,
        BUCKETS: 3 * 128 + 2 * 256,
        BLOCKS: 3 * 128 + 2 * 144,
    }
    assert found.waste(RESERVED) == pytest.approx(1 - 640 / 5000)
    # 4,000 tokens: 4 reservations; blocks of 134.4 on average, 29.76 of which there are.
    assert {name: found.at_once(name, 4000) for name in LAYOUTS} == {
        RESERVED: 4, BUCKETS: 22, BLOCKS: 29
    }  # fmt: skip


def test_branches_share_full_blocks_of_their_prompt_and_no_buffer() -> None:
    # Two samples of 20 + 3 tokens. Live: 20, then 20 and 1 of each, then 20 and 2 of each.
    found = held(lengths((20, 3, 2)), MAX_MODEL_LEN)
    assert found.live == 20 + 22 + 24
    assert found.held[BUCKETS] == 2 * 3 * 128
    # Blocks: two; then the shared one and one of each branch.
    assert found.held[BLOCKS] == 32 + 48 + 48


@given(
    st.lists(
        st.tuples(st.integers(1, 900), st.integers(1, 100), st.integers(1, 4)),
        min_size=1, max_size=5,
    )
)  # fmt: skip
def test_sums_are_those_of_all_steps(requests: Requests) -> None:
    found = held(lengths(*requests), MAX_MODEL_LEN)
    steps = [
        (prompt, prompt + said, branches)
        for prompt, output, branches in requests
        for said in range(output)
    ]
    assert found.steps == len(steps)
    assert found.live == sum(p + b * (tokens - p) for p, tokens, b in steps)
    assert found.held[BUCKETS] == sum(b * bucket(tokens) for _, tokens, b in steps)
    assert found.held[BLOCKS] == sum(blocks(*step) for step in steps)


def bucket(tokens: int) -> int:
    return next(each for each in (128, 256, 512, 1000) if tokens <= each)


def blocks(prompt: int, tokens: int, branches: int) -> int:
    """Slots of blocks that sequences hold that forked after the prompt."""
    if tokens == prompt:
        return -(-prompt // 16) * 16
    shared = prompt // 16
    return 16 * (shared + branches * (-(-tokens // 16) - shared))


@pytest.mark.parametrize(
    ("most", "expected"), [(100, [100]), (128, [128]), (600, [128, 256, 512, 600])]
)
def test_buckets_double_up_to_the_longest(most: int, expected: list[int]) -> None:
    assert buckets(most) == expected
