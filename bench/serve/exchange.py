"""One HTTP request that is being answered: from the engine's calls to the response."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from bench.serve.channel import Reason
from bench.serve.engine_call import EngineCall
from bench.serve.openai_errors import ApiError, unavailable, wrong
from bench.serve.reply import Reply
from bench.serve.sse import DONE, EventStream, event


class Exchange:
    """The calls that one request made, which end together."""

    def __init__(self, request: web.BaseRequest, calls: Sequence[EngineCall]) -> None:
        self.calls = calls
        self._request = request

    def cancel(self, reason: Reason) -> None:
        """Ends the calls whose end has not come."""
        now_s = time.monotonic()
        for call in self.calls:
            call.cancel(reason, now_s)

    def stop(self, reason: Reason) -> None:
        """Ends the exchange from the server's side. A client that does not read is cut off, as it
        would not see why."""
        self.cancel(reason)
        if self._request.protocol.writing_paused and self._request.transport is not None:
            self._request.transport.abort()

    async def whole(self, reply: Reply) -> web.StreamResponse:
        """All answers at once. Raises ApiError."""
        texts: dict[int, list[str]] = {a.index: [] for call in self.calls for a in call.answers}
        ids: dict[int, list[int]] = {index: [] for index in texts}

        async def follow(call: EngineCall) -> None:
            while (pieces := await call.step()) is not None:
                for answer, token_id, text in pieces:
                    texts[answer.index].append(text)
                    if token_id is not None:
                        ids[answer.index].append(token_id)
            check_end(call)

        await self._each(follow)
        said = ["".join(parts) for parts in texts.values()]
        return web.json_response(reply.whole(said, list(ids.values())))

    async def streamed(self, reply: Reply) -> web.StreamResponse:
        """Answers as they come. Raises ApiError while nothing was sent; later it is an event."""
        stream = EventStream(self._request)

        async def follow(call: EngineCall) -> None:
            while (pieces := await call.step()) is not None:
                await stream.send(*map(event, reply.chunks(pieces)))
            check_end(call)

        try:
            await self._each(follow)
        except ApiError as error:
            if not stream.started:
                raise
            await stream.send(event(error.body()), DONE)
            return stream.response
        await stream.send(*map(event, reply.last()), DONE)
        return stream.response

    async def _each(self, follow: Callable[[EngineCall], Awaitable[None]]) -> None:
        """All calls side by side; the first failure is raised."""
        if len(self.calls) == 1:
            await follow(self.calls[0])
            return
        tasks = [asyncio.ensure_future(follow(call)) for call in self.calls]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def check_end(call: EngineCall) -> None:
    """Raises ApiError unless the engine completed the call."""
    ended = call.ended
    assert ended is not None
    if ended.status == "completed":
        return
    if ended.status == "rejected":
        raise wrong(
            "prompt",
            f"the request can never run: {ended.cause}; shorten it.",
            "context_length_exceeded",
        )
    if call.reason == "timeout":
        raise ApiError(504, "the request took longer than the server allows.", code="timeout")
    if ended.status == "failed" or (ended.status == "unfinished" and ended.cause):
        raise ApiError(500, f"the request failed: {ended.cause}.", code="engine_failed")
    raise unavailable("the server is shutting down.")
