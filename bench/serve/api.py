"""What a request asks for, from its JSON body: checked, tokenized, with OpenAI's defaults.

Every function raises ApiError, of status 400 unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.serve.channel import OWN_IDS
from bench.serve.chat_prompt import chat_prompt
from bench.serve.fields import Fields, checked_text
from bench.serve.openai_errors import ApiError, shown, wrong
from bench.serve.tokenizer import Tokenizer
from bench.serve.unsupported import refuse_unsupported

COMPLETION_TOKENS = 16  # OpenAI's default of max_tokens
MOST_PROMPTS, MOST_ANSWERS, MOST_STOPS, MOST_STOP_CHARACTERS = 256, 128, 4, 256
MOST_NAME_CHARACTERS = 256
HOTTEST = 2.0
_SEEDS = 1 << 63


@dataclass(frozen=True, slots=True)
class Told:
    """What fragbench's load generator tells besides, in the private field `fragbench`: its number
    and kind of the request, and the answer's true length, for policies that may know it."""

    request_id: int | None = None
    output_tokens: int | None = None
    kind: str = ""
    cache_salt: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A checked request: `n` answers to each of `prompts` (token ids)."""

    prompts: list[list[int]]
    max_tokens: int
    n: int
    min_tokens: int
    ignore_eos: bool
    stops: tuple[str, ...]
    temperature: float | None
    seed: int | None
    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_token_ids: bool
    told: Told


@dataclass(frozen=True, slots=True)
class Served:
    """What requests are checked against."""

    name: str
    vocab_size: int
    max_model_len: int
    tokenizer: Tokenizer


def completion_wanted(body: Mapping[str, Any], served: Served) -> Wanted:
    """Of /v1/completions."""
    fields = _begin(body, served)
    prompts = _prompts(fields.raw("prompt"), served)
    default = min(COMPLETION_TOKENS, _room(prompts, served))
    max_tokens = fields.whole("max_tokens", 1, served.max_model_len) or default
    return _wanted(fields, prompts, max_tokens, served)


def chat_wanted(body: Mapping[str, Any], served: Served) -> Wanted:
    """Of /v1/chat/completions: an answer may be as long as the model's context has room."""
    fields = _begin(body, served)
    prompts = [_encode(chat_prompt(fields.raw("messages")), "messages", served)]
    new, old = (
        fields.whole(name, 1, served.max_model_len)
        for name in ("max_completion_tokens", "max_tokens")
    )
    return _wanted(fields, prompts, new or old or _room(prompts, served), served)


def _room(prompts: list[list[int]], served: Served) -> int:
    """Tokens that the context has left, at least 1."""
    return max(1, served.max_model_len - max(map(len, prompts)))


def _begin(body: Mapping[str, Any], served: Served) -> Fields:
    fields = Fields(body)
    model = fields.text("model")
    if model is not None and model != served.name:
        raise ApiError(
            404,
            f"the model {shown(model)} does not exist: {served.name} is served here.",
            param="model",
            code="model_not_found",
        )
    refuse_unsupported(body)
    return fields


def _wanted(fields: Fields, prompts: list[list[int]], max_tokens: int, served: Served) -> Wanted:
    _check_prompts(prompts, max_tokens, served)
    options = fields.object("stream_options") or Fields({})
    wanted = Wanted(
        prompts=prompts,
        max_tokens=max_tokens,
        n=fields.whole("n", 1, MOST_ANSWERS) or 1,
        min_tokens=fields.whole("min_tokens", 0, max_tokens) or 0,
        ignore_eos=fields.flag("ignore_eos"),
        stops=_stops(fields.raw("stop")),
        temperature=fields.number("temperature", 0, HOTTEST),
        seed=fields.whole("seed", -_SEEDS, _SEEDS - 1),
        stream=fields.flag("stream"),
        include_usage=options.flag("include_usage"),
        continuous_usage=options.flag("continuous_usage_stats"),
        return_token_ids=fields.flag("return_token_ids"),
        told=_told(fields, max_tokens),
    )
    if wanted.told.request_id is not None and len(prompts) > 1:
        raise wrong("fragbench.request_id", "fragbench.request_id is of one prompt: send one.")
    return wanted


def _prompts(value: Any, served: Served) -> list[list[int]]:
    """Token ids of a string, of a list of ids, or of a list of either."""
    if isinstance(value, list) and value and isinstance(value[0], str | list):
        if len(value) > MOST_PROMPTS:
            raise wrong("prompt", f"prompt has {len(value)} prompts: send up to {MOST_PROMPTS}.")
        return [_prompt(each, f"prompt[{place}]", served) for place, each in enumerate(value)]
    return [_prompt(value, "prompt", served)]


def _prompt(value: Any, place: str, served: Served) -> list[int]:
    if isinstance(value, str):
        return _encode(checked_text(value, place), place, served)
    if isinstance(value, list) and all(type(each) is int for each in value):
        return value
    raise wrong(
        place,
        f"{place}={shown(value)} cannot be used: it is to be a string, a list of token ids, "
        "or a list of either.",
    )


def _encode(text: str, place: str, served: Served) -> list[int]:
    """Text that is longer than any that could fit is not looked at."""
    most = served.tokenizer.most_characters
    if most is not None and len(text) > most * served.max_model_len:
        raise wrong(
            place,
            f"this model's maximum context length is {served.max_model_len} tokens, and a prompt "
            f"of {len(text)} characters is longer: shorten it.",
            "context_length_exceeded",
        )
    return served.tokenizer.encode(text)


def _check_prompts(prompts: list[list[int]], max_tokens: int, served: Served) -> None:
    for prompt in prompts:
        if not prompt:
            raise wrong("prompt", "the prompt is empty: send at least one token.")
        if len(prompt) + max_tokens > served.max_model_len:
            raise wrong(
                "prompt",
                f"this model's maximum context length is {served.max_model_len} tokens, and "
                f"{len(prompt)} in the prompt and {max_tokens} in the answer were asked for: "
                "shorten one of them.",
                "context_length_exceeded",
            )
        if not 0 <= min(prompt) <= max(prompt) < served.vocab_size:
            outside = next(each for each in prompt if not 0 <= each < served.vocab_size)
            raise wrong(
                "prompt",
                f"the prompt has token id {shown(outside)}: {served.name} has ids from 0 to "
                f"{served.vocab_size - 1}.",
            )


def _stops(value: Any) -> tuple[str, ...]:
    """A stop word or up to four, none of them empty."""
    words = [] if value is None else value if isinstance(value, list) else [value]
    if len(words) > MOST_STOPS:
        raise wrong("stop", f"stop has {len(words)} words: send up to {MOST_STOPS}.")
    for word in words:
        if not isinstance(word, str) or not 0 < len(word) <= MOST_STOP_CHARACTERS:
            raise wrong(
                "stop",
                f"stop={shown(word)} cannot be used: a stop word is a string of 1 to "
                f"{MOST_STOP_CHARACTERS} characters.",
            )
        checked_text(word, "stop")
    return tuple(words)


def _told(fields: Fields, max_tokens: int) -> Told:
    told = fields.object("fragbench")
    salt = _name(fields, "cache_salt")
    if told is None:
        return Told(cache_salt=salt)
    told.known_only("request_id", "output_tokens", "kind", "cache_salt")
    return Told(
        request_id=told.whole("request_id", 0, OWN_IDS - 1),
        output_tokens=told.whole("output_tokens", 1, max_tokens),
        kind=_name(told, "kind"),
        cache_salt=_name(told, "cache_salt") or salt,
    )


def _name(fields: Fields, name: str) -> str:
    """A word that is kept with the request."""
    word = fields.text(name) or ""
    if len(word) > MOST_NAME_CHARACTERS:
        raise fields.wrong(name, f"a string of up to {MOST_NAME_CHARACTERS} characters")
    return word
