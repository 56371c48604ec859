"""OpenAI's objects around what was answered."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Protocol

from bench.serve.api import Wanted
from bench.serve.engine_call import EngineCall, Piece

FINGERPRINT = f"fragbench-{version('fragbench')}"


class Shape(Protocol):
    """How an endpoint words its answers."""

    id_prefix: str
    whole_object: str
    chunk_object: str

    def opening(self) -> dict[str, Any] | None:
        """A stream's first choice, before any text, if there is one."""

    def chunk(self, text: str) -> dict[str, Any]:
        """A choice in a stream."""

    def whole(self, text: str) -> dict[str, Any]:
        """A choice that is complete."""


class CompletionShape:
    """/v1/completions."""

    id_prefix = "cmpl"
    whole_object = chunk_object = "text_completion"

    def opening(self) -> None:
        """There is none."""

    def chunk(self, text: str) -> dict[str, Any]:
        return {"text": text}

    whole = chunk


class ChatShape:
    """/v1/chat/completions."""

    id_prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self) -> dict[str, Any]:
        return {"delta": {"role": "assistant", "content": ""}}

    def chunk(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text}}

    def whole(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}


class Reply:
    """The objects of one response."""

    def __init__(
        self, shape: Shape, wanted: Wanted, model: str, calls: Sequence[EngineCall]
    ) -> None:
        self._shape = shape
        self._wanted = wanted
        self._calls = calls
        self._opened: set[int] = set()
        self._head = {
            "id": f"{shape.id_prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": FINGERPRINT,
        }

    def whole(self, texts: Sequence[str], token_ids: Sequence[list[int]]) -> dict[str, Any]:
        """The complete response; texts and ids are those of all calls' answers in order."""
        answers = [answer for call in self._calls for answer in call.answers]
        choices = []
        for answer, text, ids in zip(answers, texts, token_ids, strict=True):
            choice = self._choice(answer.index, self._shape.whole(text))
            choice |= {"finish_reason": answer.finish_reason, "stop_reason": answer.matched}
            choices.append(choice | self._ids(ids))
        return self._object(self._shape.whole_object, choices) | {"usage": self.usage()}

    def chunks(self, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
        """A stream's next objects, one a piece and an opening before an answer's first."""
        made = []
        for answer, token_id, text in pieces:
            opening = self._shape.opening()
            if opening is not None and answer.index not in self._opened:
                self._opened.add(answer.index)
                choice = self._choice(answer.index, opening) | {"finish_reason": None}
                made.append(self._chunk([choice]))
            choice = self._choice(answer.index, self._shape.chunk(text))
            choice |= {"finish_reason": answer.finish_reason, "stop_reason": answer.matched}
            made.append(self._chunk([choice | self._ids([] if token_id is None else [token_id])]))
        return made

    def last(self) -> list[dict[str, Any]]:
        """What follows a stream's last text: usage, if it is wanted."""
        if not self._wanted.include_usage:
            return []
        return [self._object(self._shape.chunk_object, []) | {"usage": self.usage()}]

    def usage(self) -> dict[str, Any]:
        """Tokens so far. A prompt counts once, however many answers it gets."""
        prompt = sum(call.prompt_tokens for call in self._calls)
        said = sum(answer.tokens for call in self._calls for answer in call.answers)
        cached = sum(call.ended.cached_tokens for call in self._calls if call.ended)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": said,
            "total_tokens": prompt + said,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        made = self._object(self._shape.chunk_object, choices)
        if self._wanted.include_usage:
            made["usage"] = self.usage() if self._wanted.continuous_usage else None
        return made

    def _object(self, name: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._head, "object": name, "choices": choices}

    def _choice(self, index: int, said: dict[str, Any]) -> dict[str, Any]:
        return {"index": index, **said, "logprobs": None}

    def _ids(self, token_ids: list[int]) -> dict[str, Any]:
        return {"token_ids": token_ids} if self._wanted.return_token_ids else {}
