"""What requests may ask for, and how they are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.serve.api import Served, Told, Wanted, chat_wanted, completion_wanted
from bench.serve.channel import OWN_IDS
from bench.serve.openai_errors import ApiError
from bench.serve.tokenizer import ByteTokenizer

SERVED = Served("tiny", 1000, 100, ByteTokenizer(1000))
USER = [{"role": "user", "content": "hé"}]
AS_CHAT = list("user: hé\nassistant: ".encode())


def completion(**fields: Any) -> Wanted:
    return completion_wanted({"prompt": "abc"} | fields, SERVED)


def chat(**fields: Any) -> Wanted:
    return chat_wanted({"messages": USER} | fields, SERVED)


def refusal(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        chat(**fields) if "messages" in fields else completion(**fields)
    assert caught.value.message.endswith(".")
    return caught.value


def test_what_is_not_said_is_as_openai_and_vllm_have_it() -> None:
    wanted = completion()
    assert wanted == Wanted(
        prompts=[[97, 98, 99]],
        max_tokens=16,
        n=1,
        min_tokens=0,
        ignore_eos=False,
        stops=(),
        temperature=None,
        seed=None,
        stream=False,
        include_usage=False,
        continuous_usage=False,
        return_token_ids=False,
        told=Told(),
    )
    assert chat().prompts == [AS_CHAT]
    assert chat().max_tokens == 100 - len(AS_CHAT)


def test_the_default_is_no_more_than_the_context_has_room_for() -> None:
    assert completion(prompt=[1] * 95).max_tokens == 5


def test_null_is_as_good_as_absent() -> None:
    names = ("model", "max_tokens", "n", "stop", "temperature", "seed", "stream", "stream_options",
             "logprobs", "top_p", "tools", "fragbench", "logit_bias", "echo")  # fmt: skip
    assert completion(**dict.fromkeys(names)) == completion()


def test_what_is_said_is_taken() -> None:
    wanted = completion(
        model="tiny", prompt=[1, 2], max_tokens=9, min_tokens=3, n=2, stop=["a", "b"], seed=-5,
        temperature=0, ignore_eos=True, stream=True, stream_options={"include_usage": True},
        return_token_ids=True, user="somebody", top_p=1.0, frequency_penalty=0, best_of=1,
        something_new=[1],
        fragbench={"request_id": 7, "output_tokens": 9, "kind": "chat", "cache_salt": "s"},
    )  # fmt: skip
    assert wanted == Wanted(
        prompts=[[1, 2]],
        max_tokens=9,
        n=2,
        min_tokens=3,
        ignore_eos=True,
        stops=("a", "b"),
        temperature=0.0,
        seed=-5,
        stream=True,
        include_usage=True,
        continuous_usage=False,
        return_token_ids=True,
        told=Told(7, 9, "chat", "s"),
    )


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ("é", [[0xC3, 0xA9]]),
        ([5, 6], [[5, 6]]),
        (["a", "bc"], [[97], [98, 99]]),
        ([[5], [6, 7]], [[5], [6, 7]]),
        (["a", [6, 7]], [[97], [6, 7]]),
        ("<|300|>", [[300]]),
    ],
)
def test_prompts_are_text_or_ids_one_or_several(prompt: Any, ids: list[list[int]]) -> None:
    assert completion(prompt=prompt).prompts == ids


class Unlooked(ByteTokenizer):
    """Fails at what is too long to be looked at."""

    def encode(self, text: str) -> list[int]:
        assert len(text) <= 100 * len("<|999|>")
        return super().encode(text)


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"prompt": "<|300|>" * 101}, "prompt"),
     ({"prompt": ["a", "a" * 8_000_000]}, "prompt[1]"),
     ({"messages": [{"role": "user", "content": "a" * 8_000_000}]}, "messages")],
)  # fmt: skip
def test_text_that_can_never_fit_is_refused_before_it_is_made_to_tokens(
    fields: dict[str, Any], param: str
) -> None:
    served = Served("tiny", 1000, 100, Unlooked(1000))
    read = chat_wanted if "messages" in fields else completion_wanted
    with pytest.raises(ApiError) as caught:
        read(fields, served)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", param)


def test_text_as_long_as_any_that_fits_is_read() -> None:
    assert completion(prompt="<|300|>" * 99, max_tokens=1).prompts == [[300] * 99]


def test_the_newer_name_of_a_chat_answers_length_counts() -> None:
    assert chat(max_completion_tokens=5, max_tokens=9).max_tokens == 5
    assert chat(max_tokens=9).max_tokens == 9


def test_a_conversation_is_a_line_a_message() -> None:
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None},
        {"role": "user", "content": ""},
    ]
    text = "system: be brief\nuser: ab\nassistant: \nuser: \nassistant: "
    assert chat(messages=messages).prompts == [list(text.encode())]


def test_a_later_turn_begins_with_the_earlier_one_and_its_answer() -> None:
    [before] = chat().prompts
    answer = "<|700|>x"
    later = [*USER, {"role": "assistant", "content": answer}, {"role": "user", "content": "z"}]
    [after] = chat(messages=later).prompts
    assert after[: len(before) + 2] == [*before, 700, ord("x")]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        # wrong types and ranges
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"max_tokens": 9.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 10**30}, "max_tokens"),
        ({"max_tokens": float("nan")}, "max_tokens"),
        ({"min_tokens": 17}, "min_tokens"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"seed": 1.5}, "seed"),
        ({"seed": 1 << 63}, "seed"),
        ({"stream": "yes"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"ignore_eos": 0}, "ignore_eos"),
        ({"stream_options": []}, "stream_options"),
        ({"stream_options": {"include_usage": "no"}}, "stream_options.include_usage"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": 3}, "stop"),
        ({"stop": {"a": 1}}, "stop"),
        ({"stop": "x" * 257}, "stop"),
        ({"stop": "\ud800"}, "stop"),
        ({"model": 3}, "model"),
        # prompts
        ({"prompt": None}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"prompt": 3}, "prompt"),
        ({"prompt": {"text": "a"}}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [1, None]}, "prompt"),
        ({"prompt": [1, True]}, "prompt"),
        ({"prompt": [1.0]}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt[1]"),
        ({"prompt": [[1], [[2]]]}, "prompt[1]"),
        ({"prompt": "a\udfff"}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [1000]}, "prompt"),
        ({"prompt": [10**40]}, "prompt"),
        ({"prompt": [[1]] * 257}, "prompt"),
        # the private field
        ({"fragbench": 1}, "fragbench"),
        ({"fragbench": {"request_id": -1}}, "fragbench.request_id"),
        ({"fragbench": {"request_id": OWN_IDS}}, "fragbench.request_id"),
        ({"fragbench": {"kind": "k" * 257}}, "fragbench.kind"),
        ({"fragbench": {"cache_salt": "s" * 257}}, "fragbench.cache_salt"),
        ({"cache_salt": "s" * 257}, "cache_salt"),
        ({"fragbench": {"output_tokens": 17}}, "fragbench.output_tokens"),
        ({"fragbench": {"kind": 1}}, "fragbench.kind"),
        ({"fragbench": {"requestid": 1}}, "fragbench.requestid"),
        ({"fragbench": {"request_id": 1}, "prompt": ["a", "b"]}, "fragbench.request_id"),
        # conversations
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "robot", "content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": ["user"], "content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
         "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0]"),
        ({"messages": USER, "max_completion_tokens": 0}, "max_completion_tokens"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert error.status == 400
    assert error.param == param
    assert error.body()["error"]["type"] == "invalid_request_error"
    json.dumps(error.body()).encode("ascii")


@pytest.mark.parametrize(
    "fields",
    [
        {"logprobs": 0}, {"logprobs": 5}, {"logprobs": True}, {"top_logprobs": 2},
        {"prompt_logprobs": 1}, {"top_p": 0.9}, {"top_p": True}, {"top_k": 5}, {"min_p": 0.1},
        {"presence_penalty": 0.5}, {"frequency_penalty": -1}, {"repetition_penalty": 1.1},
        {"logit_bias": {"5": 1}}, {"best_of": 2}, {"echo": True}, {"suffix": "x"},
        {"use_beam_search": True}, {"tools": [{"type": "function"}]}, {"tool_choice": "required"},
        {"response_format": {"type": "json_object"}}, {"stop_token_ids": [5]},
        {"guided_json": {}}, {"include_stop_str_in_output": True}, {"modalities": ["audio"]},
    ],
)  # fmt: skip
def test_what_would_be_answered_wrongly_is_refused(fields: dict[str, Any]) -> None:
    [name] = fields
    error = refusal(**fields)
    assert (error.status, error.param, error.code) == (400, name, "unsupported_value")
    assert "leave it out" in error.message


def test_a_request_longer_than_the_model_has_openais_code() -> None:
    for fields in ({"prompt": [1] * 91, "max_tokens": 10}, {"prompt": [1] * 100}):
        error = refusal(**fields)
        assert (error.status, error.code) == (400, "context_length_exceeded")
        assert "100" in error.message
    assert completion(prompt=[1] * 90, max_tokens=10).max_tokens == 10
    assert refusal(messages=[{"role": "user", "content": "x" * 100}]).code == (
        "context_length_exceeded"
    )


def test_another_model_is_not_there() -> None:
    error = refusal(model="gpt")
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")


def test_a_refusal_of_a_huge_value_is_short() -> None:
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    for value in ("x" * 10**6, [1] * 10**6, deep, {"x" * 10**5: 1}):
        assert len(refusal(temperature=value).message) < 200
