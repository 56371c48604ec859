"""The official client against the real thing: a small model, computed on the CPU."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from bench.load.models import Served, served_model
from bench.packaged import load_model
from tests.bench.serve.running import ON_CPU, Server, running

PROMPT = "Where did the memory go?"
MESSAGES = [{"role": "user", "content": "hé"}]
AS_CHAT = "user: hé\nassistant: "


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    out = tmp_path_factory.mktemp("serve") / "run"
    with running(out, "backend=paged_prefix", *ON_CPU) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_the_model_is_listed_and_found(client: OpenAI) -> None:
    [model] = client.models.list().data
    vocabulary = load_model("tiny").vocab_size
    assert (model.id, model.object, model.owned_by) == ("tiny", "model", "fragbench")
    assert client.models.retrieve("tiny") == model
    assert served_model(str(client.base_url), None, None) == Served("tiny", True, vocabulary)
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt")
    assert caught.value.code == "model_not_found"


def test_a_completion_is_as_long_as_asked_for(client: OpenAI) -> None:
    done = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=8)
    [choice] = done.choices
    assert done.object == "text_completion"
    assert done.id.startswith("cmpl-")
    assert (choice.index, choice.finish_reason) == (0, "length")
    assert choice.text
    usage = done.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (len(PROMPT), 8)
    assert usage.total_tokens == len(PROMPT) + 8
    assert client.completions.create(model="tiny", prompt="a").usage.completion_tokens == 16  # type: ignore[union-attr]


def test_a_stream_says_what_a_complete_answer_says(client: OpenAI) -> None:
    whole = client.completions.create(
        model="tiny", prompt=PROMPT, max_tokens=20, extra_body={"return_token_ids": True}
    ).choices[0]
    stream = client.completions.create(
        model="tiny", prompt=PROMPT, max_tokens=20, stream=True,
        extra_body={"return_token_ids": True},
    )  # fmt: skip
    choices = [chunk.choices[0] for chunk in stream]
    assert "".join(choice.text for choice in choices) == whole.text
    assert [one for choice in choices for one in choice.token_ids] == whole.token_ids  # type: ignore[attr-defined]
    reasons = [choice.finish_reason for choice in choices]
    assert reasons == [None] * 19 + ["length"]


def test_a_chat_is_a_completion_of_its_lines(client: OpenAI) -> None:
    plain = client.completions.create(model="tiny", prompt=AS_CHAT, max_tokens=6)
    chat = client.chat.completions.create(model="tiny", messages=MESSAGES, max_completion_tokens=6)  # type: ignore[arg-type]
    [choice] = chat.choices
    assert chat.object == "chat.completion"
    assert choice.message.role == "assistant"
    assert choice.message.content == plain.choices[0].text
    assert choice.finish_reason == "length"
    assert chat.usage is not None
    assert chat.usage.prompt_tokens == len(AS_CHAT.encode())


def test_a_chat_streams_its_role_its_text_and_its_usage(client: OpenAI) -> None:
    whole = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=5)  # type: ignore[arg-type]
    first, *rest = client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=5, stream=True,
        stream_options={"include_usage": True},
    )  # type: ignore[call-overload]  # fmt: skip
    *texts, last = rest
    assert first.choices[0].delta.role == "assistant"
    assert first.choices[0].delta.content == ""
    said = "".join(chunk.choices[0].delta.content for chunk in texts)
    assert said == whole.choices[0].message.content
    assert texts[-1].choices[0].finish_reason == "length"
    assert (last.choices, last.usage.completion_tokens) == ([], 5)
    assert {chunk.usage for chunk in texts} == {None}


def test_a_chats_answer_may_fill_the_context(client: OpenAI) -> None:
    prompt = "x" * (1024 - len("user: \nassistant: ") - 7)
    chat = client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": prompt}]
    )
    assert chat.usage is not None
    assert (chat.usage.completion_tokens, chat.usage.total_tokens) == (7, 1024)


def test_several_answers_are_drawn_apart_and_the_same_again(client: OpenAI) -> None:
    def drawn(seed: int, *, stream: bool) -> list[str]:
        asked = client.completions.create(
            model="tiny", prompt=PROMPT, max_tokens=6, n=3, temperature=1.5, seed=seed,
            stream=stream,
        )  # type: ignore[call-overload]  # fmt: skip
        texts = ["", "", ""]
        for chunk in asked if stream else [asked]:
            for choice in chunk.choices:
                texts[choice.index] += choice.text
        return texts

    once = drawn(7, stream=False)
    assert len(set(once)) == 3
    assert drawn(7, stream=True) == once
    assert drawn(8, stream=False) != once


def test_several_prompts_are_answered_in_order(client: OpenAI) -> None:
    prompts = ["one", "three", "two"]
    alone = [
        client.completions.create(model="tiny", prompt=prompt, max_tokens=4).choices[0].text
        for prompt in prompts
    ]
    together = client.completions.create(model="tiny", prompt=prompts, max_tokens=4, n=2)
    assert [choice.index for choice in together.choices] == list(range(6))
    assert [choice.text for choice in together.choices] == [text for text in alone for _ in "nn"]
    assert together.usage is not None
    assert (together.usage.prompt_tokens, together.usage.completion_tokens) == (11, 24)
    texts = [""] * 6
    for chunk in client.completions.create(
        model="tiny", prompt=prompts, max_tokens=4, n=2, stream=True
    ):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [choice.text for choice in together.choices]


def test_ids_and_text_are_the_same_prompt(client: OpenAI) -> None:
    text = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=4)
    ids = client.completions.create(model="tiny", prompt=list(PROMPT.encode()), max_tokens=4)
    assert ids.choices[0].text == text.choices[0].text


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_ends_before_a_stop_word_that_crosses_tokens(
    client: OpenAI, stream: bool
) -> None:
    drawing = {"model": "tiny", "prompt": PROMPT, "temperature": 1.0, "seed": 1}
    text = client.completions.create(**drawing, max_tokens=30).choices[0].text  # type: ignore[call-overload]
    boundary = [match.end() for match in re.finditer(r"\|>(?=<)", text)][9]
    stop = text[boundary - 5 : boundary + 5]
    asked = client.completions.create(  # type: ignore[call-overload]
        **drawing, max_tokens=30, stop=["nowhere", stop], stream=stream
    )
    choices = [chunk.choices[0] for chunk in (asked if stream else [asked])]
    assert "".join(choice.text for choice in choices) == text[: text.index(stop)]
    assert choices[-1].finish_reason == "stop"
    assert choices[-1].stop_reason == stop


def test_the_engine_stops_where_the_answer_does(client: OpenAI, server: Server) -> None:
    before = server.metric("vllm:generation_tokens_total")
    text = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=2).choices[0].text
    done = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=900, stop=text)
    assert done.choices[0].text == ""
    assert done.usage is not None
    assert done.usage.completion_tokens == 2
    assert 4 <= server.metric("vllm:generation_tokens_total") - before < 100
    assert server.metric("fragbench:requests_ended_total", status="cancelled") == 0


def test_a_prompt_that_comes_again_is_found_in_the_cache(client: OpenAI) -> None:
    prompt = "The same words, said twice, are computed once. " * 4
    for cached in (0, 16 * ((len(prompt) - 1) // 16)):
        usage = client.completions.create(model="tiny", prompt=prompt, max_tokens=2).usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        assert usage.prompt_tokens_details.cached_tokens == cached


def test_refusals_are_the_clients_exceptions(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.completions.create(model="gpt", prompt="a")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model="tiny", prompt="a", max_tokens=1024)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as unsupported:
        client.completions.create(model="tiny", prompt="a", logprobs=1, stream=True)
    assert unsupported.value.param == "logprobs"
    assert "logprobs" in unsupported.value.message


def test_many_at_once_get_what_each_gets_alone(client: OpenAI, server: Server) -> None:
    prompts = [f"{number} bottles" for number in range(24)]

    async def together() -> list[str]:
        url = f"{server.url}/v1"
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as many:
            asked = [
                many.completions.create(model="tiny", prompt=prompt, max_tokens=5)
                for prompt in prompts
            ]
            return [done.choices[0].text for done in await asyncio.gather(*asked)]

    alone = [
        client.completions.create(model="tiny", prompt=prompt, max_tokens=5).choices[0].text
        for prompt in prompts
    ]
    assert asyncio.run(together()) == alone


def test_whoever_leaves_a_stream_leaves_no_memory_held(client: OpenAI, server: Server) -> None:
    stream = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=900, stream=True)
    next(iter(stream))
    assert server.metric("fragbench:requests_ended_total", reason="disconnect") == 0
    stream.close()
    server.wait_until(
        lambda: server.metric("fragbench:requests_ended_total", reason="disconnect") == 1
    )
    server.wait_until(lambda: server.metric("fragbench:held_bytes") == 0)
    assert server.metric("fragbench:cancel_to_free_seconds_count", reason="disconnect") == 1
