"""What prompts share, against the token ids that they are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.traffic.overlap import found_tokens
from bench.turns import turns
from workloads.base import Request, Segment, Source
from workloads.tokens import output_ids, prompt_ids

VOCAB_SIZE = 1 << 30  # no two streams agree by chance


def by_comparison(requests: Sequence[Request]) -> list[int]:
    """Each prompt's longest common start with any earlier prompt and its answer, token by token."""
    said: list[tuple[str, np.ndarray]] = []
    found = []
    for request in requests:
        prompt = prompt_ids(request, VOCAB_SIZE)
        earlier = [ids for salt, ids in said if salt == request.cache_salt]
        longest = max((common(prompt, ids) for ids in earlier), default=0)
        found.append(min(longest, len(prompt) - 1))
        whole = np.concatenate([prompt, output_ids(request, VOCAB_SIZE)])
        said.append((request.cache_salt, whole))
    return found


def common(some: np.ndarray, others: np.ndarray) -> int:
    shorter = min(len(some), len(others))
    differ = np.flatnonzero(some[:shorter] != others[:shorter])
    return int(differ[0]) if len(differ) else shorter


SEGMENTS = st.lists(
    st.builds(
        Segment,
        st.sampled_from([Source.SHARED, Source.PROMPT, Source.OUTPUT]),
        st.integers(0, 2),
        st.integers(0, 6),
    ),
    max_size=4,
)


@st.composite
def requests(draw: st.DrawFn) -> list[Request]:
    """Few streams and short segments, so that prompts meet in every way; the last one cut."""
    return [
        Request(
            request_id=number,
            scheduled_s=0.0,
            prompt_tokens=draw(st.integers(1, 16)),
            output_tokens=draw(st.integers(1, 6)),
            prefix=tuple(draw(SEGMENTS)),
            cache_salt=draw(st.sampled_from(["", "tenant"])),
        )
        for number in range(draw(st.integers(1, 6)))
    ]


@settings(max_examples=150, deadline=None)
@given(requests())
def test_found_tokens_are_those_that_a_comparison_of_ids_finds(drawn: list[Request]) -> None:
    assert found_tokens(drawn).tolist() == by_comparison(drawn)


def test_a_later_turn_finds_the_turn_before_and_its_answer() -> None:
    said = (Segment(Source.PROMPT, 0, 30), Segment(Source.OUTPUT, 0, 12))
    later = Request(1, 5.0, 50, 4, prefix=said)
    first = Request(0, 0.0, 30, 12, next_turn=later)
    assert found_tokens(list(turns([first]))).tolist() == [0, 42]


def test_the_last_token_of_a_repeated_prompt_is_computed() -> None:
    shared = (Segment(Source.SHARED, 7, 32),)
    again = [Request(number, 0.0, 32, 1, prefix=shared) for number in range(3)]
    assert found_tokens(again).tolist() == [0, 31, 31]
