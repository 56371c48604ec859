"""What the events of an OpenAI-style stream mean: which tokens came when, and how it ended.

Tokens are counted by the best there is: `ids` (vLLM's `return_token_ids`), else the `usage` total
at the end, else one for each chunk with content (`chunks`). All tokens of a chunk came at its time.
Where only the total is known, every chunk with content has one token and the rest is spread over
them by the length of their text: which of them had more is not told.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal, NamedTuple, TypeVar

from bench.load.sse import Event

DONE = "[DONE]"
TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "refusal")
"""Of a chat chunk's delta: what a person would read."""

Source = Literal["ids", "usage", "chunks"]
MOST_TOKENS = 2**31 - 1
T = TypeVar("T")


class OddAnswerError(ValueError):
    """JSON that is not as the protocol has it. The message says what."""


class Chunk(NamedTuple):
    """Content of one choice in one event; `tokens` is 0 where the server gives no ids."""

    at_s: float
    tokens: int
    characters: int


@dataclass(slots=True)
class Choice:
    """One of the answers, as far as it came."""

    chunks: list[Chunk] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    finish_reason: str | None = None

    arrived: int = 0
    """Tokens so far, those of a chunk without ids counted once."""

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def take(self, at_s: float, text: str, token_ids: Sequence[int]) -> None:
        """Content that came at `at_s`."""
        self.chunks.append(Chunk(at_s, len(token_ids), len(text)))
        self.token_ids += token_ids
        self.texts.append(text)
        self.arrived += len(token_ids) or 1


class Answer:
    """A streamed answer of `n` choices. Feed it events with their times.

    `error` is what the server said of it in mid-stream. `prompt_tokens`, `completion_tokens` (of
    all choices) and `cached_tokens` are the server's usage, None where it told none.
    """

    def __init__(self, n: int = 1) -> None:
        self.choices = [Choice() for _ in range(n)]
        self.first_token_s: float | None = None
        self.last_token_s: float | None = None
        self.error: str | None = None
        self.done = False
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.cached_tokens: int | None = None

    def take(self, event: Event, at_s: float) -> None:
        """An event that came at `at_s`."""
        if event.data == DONE:
            self.done = True
            return
        try:
            body = json.loads(event.data)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            self.error = f"an event that is no JSON object: {event.data[:100]!a}"
            return
        if event.event == "error" or body.get("error"):
            self.error = error_message(body)
            return
        try:
            self._take_usage(_read(body, "usage", dict))
            for choice in _read(body, "choices", list) or ():
                self._take_choice(_checked("choices", choice, dict), at_s)
        except OddAnswerError as odd:
            self.error = str(odd)

    def _take_choice(self, said: dict[str, Any], at_s: float) -> None:
        index = _count(said, "index") or 0
        if index >= len(self.choices):
            raise OddAnswerError(f"a choice that was not asked for: {index}")
        choice = self.choices[index]
        text, token_ids = _content(said)
        if text or token_ids:
            choice.take(at_s, text, token_ids)
            self.last_token_s = at_s
            if self.first_token_s is None:
                self.first_token_s = at_s
        choice.finish_reason = said.get("finish_reason") or choice.finish_reason

    def _take_usage(self, usage: dict[str, Any] | None) -> None:
        if not usage:
            return
        self.prompt_tokens = _count(usage, "prompt_tokens")
        self.completion_tokens = _count(usage, "completion_tokens")
        details = _read(usage, "prompt_tokens_details", dict) or {}
        self.cached_tokens = _count(details, "cached_tokens")

    @property
    def longest(self) -> int:
        """Tokens of the choice that has most so far."""
        return max(choice.arrived for choice in self.choices)

    @property
    def complete(self) -> bool:
        """Whether it came to its end, be it without [DONE]."""
        finished = all(choice.finish_reason for choice in self.choices)
        return self.error is None and (self.done or finished)

    @property
    def answers(self) -> int:
        """Choices of which anything came."""
        return sum(bool(choice.chunks or choice.finish_reason) for choice in self.choices)

    @property
    def counted_by(self) -> Source:
        """Where the numbers of tokens come from."""
        chunks = [chunk for choice in self.choices for chunk in choice.chunks]
        if chunks and all(chunk.tokens for chunk in chunks):
            return "ids"
        return "chunks" if self.completion_tokens is None else "usage"

    @property
    def generated_tokens(self) -> int:
        """Of all choices together."""
        if self.counted_by == "usage":
            assert self.completion_tokens is not None
            return self.completion_tokens
        return sum(self._sizes())

    def token_times_s(self) -> list[list[float]]:
        """When each token of each choice came, in order."""
        sizes = self._sizes()
        times = []
        for choice in self.choices:
            own, sizes = sizes[: len(choice.chunks)], sizes[len(choice.chunks) :]
            pairs = zip(choice.chunks, own, strict=True)
            times.append([chunk.at_s for chunk, size in pairs for _ in range(size)])
        return times

    def _sizes(self) -> list[int]:
        """Tokens of every chunk, the choices' chunks one choice after the other."""
        chunks = [chunk for choice in self.choices for chunk in choice.chunks]
        if self.counted_by == "ids":
            return [chunk.tokens for chunk in chunks]
        if self.completion_tokens is None:
            return [1] * len(chunks)
        return spread(self.completion_tokens, [chunk.characters for chunk in chunks])


def spread(total: int, weights: Sequence[int]) -> list[int]:
    """`total` in whole parts: at least 1 each if there are enough, the rest by weight; they add up
    to `total`, unless there is nothing to spread it over."""
    if not weights:
        return []
    least = 1 if total >= len(weights) else 0
    rest = total - least * len(weights)
    if not sum(weights):
        weights = [1] * len(weights)
    whole = sum(weights)
    ends = [round(rest * upto / whole) for upto in accumulate(weights)]
    return [least + end - start for start, end in zip([0, *ends], ends, strict=False)]


def error_message(body: Any) -> str:
    """What an error object says, whichever server's."""
    found = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(found, dict):
        found = found.get("message") or found.get("detail") or found
    text = str(found).encode(errors="replace").decode()  # half a surrogate pair is in no file
    return " ".join(text.split())[:300]


def _content(choice: dict[str, Any]) -> tuple[str, list[int]]:
    """Text and token ids of a choice in a chunk; a role alone is neither."""
    delta = _read(choice, "delta", dict) or {}
    texts = [_read(choice, "text", str), *(_read(delta, name, str) for name in TEXT_FIELDS)]
    called = delta.get("tool_calls")
    if called:
        texts.append(json.dumps(called))
    ids = _read(choice, "token_ids", list) or _read(delta, "token_ids", list) or []
    for token in ids:
        _checked("token_ids", token, int)
    return "".join(text for text in texts if text), ids


def _read(said: dict[str, Any], name: str, kind: type[T]) -> T | None:
    value = said.get(name)
    return None if value is None else _checked(name, value, kind)


def _count(said: dict[str, Any], name: str) -> int | None:
    value = _read(said, name, int)
    if value is not None and not 0 <= value <= MOST_TOKENS:
        raise OddAnswerError(f"{name} that is no count: {str(value)[:20]}")
    return value


def _checked(name: str, value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise OddAnswerError(f"{name} with what is no {kind.__name__}: {value!a:.100}")
    return value
