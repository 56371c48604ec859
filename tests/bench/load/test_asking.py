"""What is sent for a request."""

from __future__ import annotations

import json

from bench.load.completions import Choice
from bench.load.words import text
from tests.bench.load.clients import VOCAB, asker, request
from workloads.base import Segment, Source
from workloads.tokens import prompt_ids

URL = "http://127.0.0.1:8000"
TURN = request(
    2,
    prompt_tokens=12,
    prefix=(
        Segment(Source.SHARED, 0, 3),
        Segment(Source.PROMPT, 1, 2),
        Segment(Source.OUTPUT, 1, 4),
    ),
)
"""A second turn: 3 tokens that are shared, 2 said, 4 answered, 3 new."""


def test_a_prompt_of_ids_is_the_workloads() -> None:
    body = asker(URL).body(TURN, {})
    assert body["prompt"] == prompt_ids(TURN, VOCAB).tolist()
    assert (body["model"], body["max_tokens"]) == ("scripted", 5)
    assert body["stream"]
    assert body["stream_options"] == {"include_usage": True}
    assert body["ignore_eos"]
    assert "n" not in body
    assert "fragbench" not in body


def test_answers_that_were_given_replace_what_stands_for_them() -> None:
    ids = prompt_ids(TURN, VOCAB).tolist()
    prompt = asker(URL).body(TURN, {1: Choice(token_ids=[7, 8, 9, 10])})["prompt"]
    assert prompt == [*ids[:5], 7, 8, 9, 10, *ids[9:]]


def test_an_answer_that_was_cut_short_leaves_the_rest() -> None:
    ids = prompt_ids(TURN, VOCAB).tolist()
    assert asker(URL).body(TURN, {1: Choice(token_ids=[7])})["prompt"] == [*ids[:5], 7, *ids[6:]]


def test_a_prompt_as_text() -> None:
    ids = prompt_ids(TURN, VOCAB).tolist()
    prompt = asker(URL, prompt_as="text").body(TURN, {1: Choice(texts=["so ", "it is"])})["prompt"]
    assert prompt == f"{text(ids[:3])} {text(ids[3:5])} so it is {text(ids[9:])}"


def test_a_chat_has_a_message_for_each_who_speaks() -> None:
    chat = asker(URL, endpoint="chat")
    ids = prompt_ids(TURN, VOCAB).tolist()
    messages = chat.body(TURN, {1: Choice(texts=["yes"])})["messages"]
    assert messages == [
        {"role": "system", "content": text(ids[:3])},
        {"role": "user", "content": text(ids[3:5])},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": text(ids[9:])},
    ]
    assert chat.path == "/v1/chat/completions"


def test_lengths_travel_only_in_the_private_field() -> None:
    told = asker(URL, tell_lengths=True).body(request(3, kind="chat", cache_salt="a"), {})
    private = {"request_id": 3, "output_tokens": 5, "kind": "chat", "cache_salt": "a"}
    assert told["fragbench"] == private
    assert told["cache_salt"] == "a"


def test_the_head_is_right() -> None:
    sent = asker("http://[::1]:8000/base/v1/", api_key="k").request(request(), {})
    head, _, body = sent.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /base/v1/completions HTTP/1.1"
    assert {"Host: [::1]:8000", "Authorization: Bearer k"} < set(lines)
    assert f"Content-Length: {len(body)}" in lines
    assert json.loads(body)["max_tokens"] == 5
