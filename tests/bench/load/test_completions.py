"""What events of OpenAI-style streams mean."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load.completions import Answer, spread
from bench.load.sse import Event


def answer_of(*events: tuple[float, Any], n: int = 1) -> Answer:
    answer = Answer(n)
    for at_s, said in events:
        answer.take(Event(said if isinstance(said, str) else json.dumps(said)), at_s)
    return answer


def text(content: str, index: int = 0, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "text": content, **more}]}


def delta(**more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": more}]}


def usage(prompt: int, completion: int) -> dict[str, Any]:
    return {
        "choices": [],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion},
    }


END = text("", finish_reason="length")


def test_a_role_alone_is_no_token() -> None:
    answer = answer_of((1.0, delta(role="assistant", content="")), (2.0, delta(content="a")))
    assert answer.first_token_s == 2.0
    assert answer.token_times_s() == [[2.0]]


def test_thinking_is_content() -> None:
    assert answer_of((1.0, delta(reasoning_content="hm"))).first_token_s == 1.0


def test_ids_count_tokens_of_a_chunk() -> None:
    answer = answer_of((1.0, text("ab", token_ids=[5, 6])), (2.0, text("c", token_ids=[7])))
    assert answer.token_times_s() == [[1.0, 1.0, 2.0]]
    assert answer.choices[0].token_ids == [5, 6, 7]
    assert (answer.counted_by, answer.generated_tokens) == ("ids", 3)


def test_a_token_without_text_is_one() -> None:
    """Half of a character of many bytes."""
    assert answer_of((1.0, text("", token_ids=[5]))).token_times_s() == [[1.0]]


def test_usage_settles_what_chunks_do_not_tell() -> None:
    """Three chunks, five tokens: one each, the other two by length of text, 1 : 3 : 4 (cumulated
    2 * 1/8, 4/8, 8/8, rounded half to even: 0, 1, 2)."""
    chunks = [(1.0, text("a")), (2.0, text("bcd")), (3.0, text("efgh"))]
    answer = answer_of(*chunks, (3.0, usage(9, 5)))
    assert answer.token_times_s() == [[1.0, 2.0, 2.0, 3.0, 3.0]]
    assert (answer.counted_by, answer.prompt_tokens) == ("usage", 9)


def test_without_ids_or_usage_a_chunk_is_a_token() -> None:
    answer = answer_of((1.0, text("a")), (2.0, text("bcd")))
    assert answer.token_times_s() == [[1.0, 2.0]]
    assert answer.counted_by == "chunks"


def test_choices_are_told_apart() -> None:
    answer = answer_of(
        (1.0, text("a", 0, token_ids=[1])),
        (2.0, text("b", 1, token_ids=[2])),
        (3.0, text("c", 1, token_ids=[3], finish_reason="length")),
        n=2,
    )
    assert answer.token_times_s() == [[1.0], [2.0, 3.0]]
    assert [choice.text for choice in answer.choices] == ["a", "bc"]
    assert answer.generated_tokens == 3
    assert answer.longest == 2
    assert not answer.complete  # the first has no end


@pytest.mark.parametrize(
    ("events", "complete"),
    [
        ([(1.0, text("a")), (2.0, END)], True),  # without [DONE]
        ([(1.0, text("a")), (2.0, "[DONE]")], True),
        ([(1.0, text("a"))], False),
        ([(1.0, text("a")), (2.0, {"error": {"message": "no memory"}}), (3.0, "[DONE]")], False),
    ],
)
def test_when_an_answer_is_whole(events: list[Any], complete: bool) -> None:
    assert answer_of(*events).complete is complete


def test_an_error_in_mid_stream() -> None:
    assert answer_of((1.0, {"error": {"message": "no\nmemory"}})).error == "no memory"
    assert answer_of((1.0, {"error": "no memory", "error_type": "x"})).error == "no memory"
    answer = Answer()
    answer.take(Event('{"message": "no memory"}', "error"), 1.0)
    assert answer.error == "no memory"


def test_what_is_no_json_is_an_error() -> None:
    assert "no JSON" in str(answer_of((1.0, "{")).error)
    assert "no JSON" in str(answer_of((1.0, "[1]")).error)


def test_a_choice_nobody_asked_for_is_an_error() -> None:
    assert "not asked for" in str(answer_of((1.0, text("a", 1))).error)


@given(st.integers(0, 200), st.lists(st.integers(0, 9), min_size=1, max_size=20))
def test_spreading_keeps_the_total_and_leaves_no_chunk_out(total: int, weights: list[int]) -> None:
    parts = spread(total, weights)
    assert sum(parts) == total
    assert min(parts) >= (total >= len(weights))


ODD = [
    ({"choices": [], "usage": "x"}, "usage"),
    ({"choices": [], "usage": {"completion_tokens": "7"}}, "completion_tokens"),
    ({"choices": [], "usage": {"completion_tokens": -1}}, "completion_tokens"),
    ({"choices": [], "usage": {"prompt_tokens": 2**80}}, "prompt_tokens"),
    ({"choices": [], "usage": {"completion_tokens": 1, "prompt_tokens_details": [1]}}, "details"),
    ({"choices": 5}, "choices"),
    ({"choices": [None]}, "choices"),
    ({"choices": [{"index": "0", "text": "a"}]}, "index"),
    ({"choices": [{"index": True, "text": "a"}]}, "index"),
    ({"choices": [{"index": 0, "text": 5}]}, "text"),
    ({"choices": [{"index": 0, "delta": "hello"}]}, "delta"),
    ({"choices": [{"index": 0, "delta": {"content": {}}}]}, "content"),
    ({"choices": [{"index": 0, "text": "a", "token_ids": 5}]}, "token_ids"),
    ({"choices": [{"index": 0, "text": "a", "token_ids": ["5"]}]}, "token_ids"),
    ("[" * 100_000, "no JSON object"),
]


@pytest.mark.parametrize(("said", "name"), ODD)
def test_json_that_is_not_as_the_protocol_has_it_is_an_error(said: Any, name: str) -> None:
    """Of the request, not of the session that asks."""
    answer = answer_of((1.0, text("a", token_ids=[1])), (2.0, said))
    assert answer.error is not None
    assert name in answer.error
    assert not answer.complete
    assert answer.generated_tokens == 1


def test_an_error_in_half_a_letter_can_be_written() -> None:
    answer = answer_of((1.0, '{"error": {"message": "bad \\ud800"}}'))
    assert answer.error == "bad ?"


def test_answers_are_counted() -> None:
    one = answer_of((1.0, text("a", token_ids=[1])), (2.0, END), (2.0, "[DONE]"), n=3)
    assert (one.complete, one.answers) == (True, 1)
