"""Server-sent events: an answer that is written as it comes."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

DONE = b"data: [DONE]\n\n"
_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


def event(data: Any) -> bytes:
    """One event of JSON, which has no line break of its own."""
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


class EventStream:
    """The response to one request. Its headers go out with its first event, so that until then a
    refusal can have a status of its own."""

    def __init__(self, request: web.BaseRequest) -> None:
        self.response = web.StreamResponse(headers=_HEADERS)
        self._request = request

    @property
    def started(self) -> bool:
        """Whether anything was sent."""
        return self.response.prepared

    async def send(self, *events: bytes) -> None:
        """Sends events, and waits while the client is behind. Raises ConnectionError if it left."""
        if not self.started:
            await self.response.prepare(self._request)
        await self.response.write(b"".join(events))
        await self._request.writer.drain()
