"""What is said to the server for a request: its path, headers and JSON body."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from bench.load.completions import Choice
from bench.load.connections import Server
from bench.load.settings import ENDPOINTS, LoadSettings
from bench.load.words import text
from workloads.base import Request, Source
from workloads.tokens import prompt_ids

Said = Mapping[int, Choice]
"""The answers of a session so far, by request id."""


class _Part(NamedTuple):
    """A stretch of a prompt: who says it, its token ids, and the answer that it was if it came."""

    role: str
    token_ids: list[int]
    said: Choice | None


class Asker:
    """Makes requests for one server.

    A later turn's prompt has the answers that were really given: their token ids where the server
    returned them (`return_token_ids`, vLLM's extension), their text in a prompt of text. The rest
    of a turn's prompt is as in every other run of the workload.
    """

    def __init__(self, load: LoadSettings, vocab_size: int, server: Server) -> None:
        self._load = load
        self._vocab_size = load.vocab_size or vocab_size
        self.path = server.base + ENDPOINTS[load.endpoint]
        key = f"Authorization: Bearer {load.api_key}\r\n" if load.api_key else ""
        self._head = (
            f"POST {self.path} HTTP/1.1\r\nHost: {server.name}\r\n{key}"
            "Content-Type: application/json\r\nAccept: text/event-stream\r\n"
            "User-Agent: fragbench\r\nContent-Length: "
        )

    def request(self, request: Request, said: Said) -> bytes:
        """Head and body, to be sent at once."""
        body = json.dumps(self.body(request, said), separators=(",", ":")).encode()
        return f"{self._head}{len(body)}\r\n\r\n".encode("latin-1") + body

    def body(self, request: Request, said: Said) -> dict[str, Any]:
        """The JSON body."""
        load = self._load
        body: dict[str, Any] = {
            "model": load.model,
            **self._prompt(request, said),
            "max_tokens": request.output_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }
        if request.branches > 1:
            body["n"] = request.branches
        if load.ignore_eos:
            body["ignore_eos"] = True
        if load.temperature is not None:
            body["temperature"] = load.temperature
        if request.cache_salt:
            body["cache_salt"] = request.cache_salt
        if load.tell_lengths:
            body["fragbench"] = {
                "request_id": request.request_id,
                "output_tokens": request.output_tokens,
                "kind": request.kind,
                "cache_salt": request.cache_salt,
            }
        return body

    def _prompt(self, request: Request, said: Said) -> dict[str, Any]:
        parts = list(self._parts(request, said))
        if self._load.endpoint == "chat":
            return {"messages": _messages(parts)}
        if self._load.prompt_as == "text":
            return {"prompt": " ".join(map(_text, parts))}
        return {"prompt": [token for part in parts for token in _ids(part)]}

    def _parts(self, request: Request, said: Said) -> Iterator[_Part]:
        ids = prompt_ids(request, self._vocab_size).tolist()
        start = 0
        for segment in request.prefix:
            stop = min(start + segment.tokens, len(ids))
            if stop > start:
                answer = said.get(segment.id) if segment.source is Source.OUTPUT else None
                yield _Part(_role(segment.source, start), ids[start:stop], answer)
            start = stop
        if ids[start:]:
            yield _Part("user", ids[start:], None)


def _role(source: Source, start: int) -> str:
    if source is Source.OUTPUT:
        return "assistant"
    return "system" if source is Source.SHARED and start == 0 else "user"


def _ids(part: _Part) -> list[int]:
    """What was said, then what stands for the rest of it."""
    said = part.said.token_ids[: len(part.token_ids)] if part.said else []
    return said + part.token_ids[len(said) :]


def _text(part: _Part) -> str:
    return (part.said.text if part.said else "") or text(part.token_ids)


def _messages(parts: list[_Part]) -> list[dict[str, str]]:
    """Messages, one for neighbours of a role: many chat templates want them to alternate."""
    return [
        {"role": role, "content": " ".join(map(_text, together))}
        for role, together in groupby(parts, key=lambda part: part.role)
    ]
