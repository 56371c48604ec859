from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.base import Request, Segment, Source, WorkloadError
from workloads.tokens import output_ids, prompt_ids


def make_request(
    request_id: int = 0, tokens: int = 1300, ids: tuple[int, ...] = (), block: int = 512
) -> Request:
    prefix = tuple(Segment(Source.SHARED, i, block) for i in ids)
    return Request(request_id, 0.0, tokens, 1, prefix=prefix)


def common_tokens(one: Request, two: Request, vocab_size: int = 32_000) -> int:
    """How many leading tokens the two prompts share."""
    pairs = zip(prompt_ids(one, vocab_size), prompt_ids(two, vocab_size), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


@given(
    st.integers(1, 3000), st.lists(st.integers(0, 2**63 - 1), max_size=5), st.integers(2, 200_000)
)
def test_ids_have_the_prompts_length_and_lie_in_the_vocabulary(
    tokens: int, ids: list[int], vocab_size: int
) -> None:
    prompt = prompt_ids(make_request(5, tokens, tuple(ids)), vocab_size)
    assert prompt.shape == (tokens,)
    assert prompt.dtype == np.int64
    assert 0 <= prompt.min() <= prompt.max() < vocab_size


def test_equal_leading_ids_give_equal_blocks_and_no_more() -> None:
    one, two = make_request(1, ids=(3, 4, 8)), make_request(2, ids=(3, 4, 9))
    assert common_tokens(one, two) == 2 * 512


def test_the_last_partial_block_is_the_start_of_its_block() -> None:
    whole, cut = make_request(1, tokens=1024, ids=(3, 4)), make_request(2, tokens=700, ids=(3, 4))
    assert common_tokens(whole, cut) == 700


def test_tokens_after_the_last_id_belong_to_the_request() -> None:
    one, two = make_request(1, ids=(3,)), make_request(2, ids=(3,))
    assert common_tokens(one, two) == 512


def test_unique_prompts_differ_from_the_first_block_on() -> None:
    starts = {tuple(prompt_ids(make_request(n, tokens=16), 32_000)) for n in range(5000)}
    assert len(starts) == 5000


def test_a_request_id_and_a_block_id_of_the_same_number_share_nothing() -> None:
    assert common_tokens(make_request(7), make_request(0, ids=(7,))) < 4


def test_tokens_spread_evenly_over_the_vocabulary() -> None:
    counts = np.bincount(prompt_ids(make_request(1, tokens=100_000), 10), minlength=10)
    # binomial(100,000, 0.1): standard deviation 95; 5 of them
    assert np.abs(counts - 10_000).max() < 475


def test_the_first_token_is_split_mix_64_by_hand() -> None:
    def mix(word: int) -> int:
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) % 2**64
        return word ^ (word >> 31)

    key = mix(mix(9) ^ 0x13198A2E03707344)
    expected = [mix((key + n * 0x9E3779B97F4A7C15) % 2**64) % 32_000 for n in (1, 2, 3)]
    assert prompt_ids(make_request(9, tokens=3), 32_000).tolist() == expected


def test_a_turn_starts_with_exactly_the_turn_before_and_its_answer() -> None:
    system = Segment(Source.SHARED, 1, 40)
    first = Request(7, 0.0, 100, 30, prefix=(system,))
    said = (system, Segment(Source.PROMPT, 7, 60), Segment(Source.OUTPUT, 7, 30))
    second = Request(8, 0.0, 150, 5, prefix=said)
    before = [*prompt_ids(first, 32_000), *output_ids(first, 32_000)]
    ids = prompt_ids(second, 32_000).tolist()
    assert ids[:130] == before
    assert ids[130:] == prompt_ids(Request(8, 0.0, 20, 5), 32_000).tolist()


def test_a_shorter_shared_segment_is_the_start_of_a_longer_one() -> None:
    short, long = (
        Request(0, 0.0, 500, 1, prefix=(Segment(Source.SHARED, 6, tokens),)) for tokens in (70, 90)
    )
    assert common_tokens(short, long) == 70


def test_a_prompt_shorter_than_its_prefix_is_cut_in_the_segment_where_it_ends() -> None:
    segments = (Segment(Source.SHARED, 6, 70), Segment(Source.SHARED, 7, 90))
    whole, cut = (Request(0, 0.0, tokens, 1, prefix=segments) for tokens in (160, 100))
    assert common_tokens(whole, cut) == len(prompt_ids(cut, 32_000)) == 100


@given(
    st.lists(
        st.tuples(st.sampled_from(Source), st.integers(0, 2**63 - 1), st.integers(0, 60)),
        max_size=6,
    ),
    st.integers(0, 50),
)
def test_a_prompt_is_its_segments_one_after_another(
    parts: list[tuple[Source, int, int]], own: int
) -> None:
    segments = tuple(Segment(*part) for part in parts)
    total = sum(segment.tokens for segment in segments) + own
    expected: list[int] = []
    for segment in segments:
        alone = Request(0, 0.0, segment.tokens, 1, prefix=(segment,))
        expected += prompt_ids(alone, 32_000).tolist()
    expected += prompt_ids(Request(3, 0.0, own, 1), 32_000).tolist()
    assert prompt_ids(Request(3, 0.0, total, 1, prefix=segments), 32_000).tolist() == expected


def test_an_answer_a_prompt_and_a_shared_text_of_the_same_number_share_nothing() -> None:
    streams = [
        prompt_ids(Request(0, 0.0, 200, 1, prefix=(Segment(source, 9, 200),)), 32_000)
        for source in Source
    ]
    for one, other in itertools.combinations(streams, 2):
        assert (one == other).sum() <= 2  # 200 chances of 1 in 32,000
    assert output_ids(Request(9, 0.0, 1, 200), 32_000).tolist() == streams[2].tolist()


def test_a_vocabulary_of_one_token_is_refused() -> None:
    with pytest.raises(WorkloadError, match="vocab_size is 1"):
        prompt_ids(make_request(), 1)
