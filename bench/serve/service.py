"""The server's state: what it serves, what it is answering, and whether it takes more."""

from __future__ import annotations

import asyncio
import itertools
import time

from aiohttp import web

from bench.serve.answer import Answer
from bench.serve.api import Served, Wanted
from bench.serve.engine_call import EngineCall
from bench.serve.engine_client import EngineClient
from bench.serve.engine_metrics import EngineCollector
from bench.serve.exchange import Exchange
from bench.serve.metrics import ServerMetrics
from bench.serve.openai_errors import busy, unavailable, wrong
from bench.serve.reply import Reply, Shape
from bench.serve.settings import ServeSettings

LOOK_S = 0.02


class Service:
    """Answers requests with an engine. For one event loop."""

    def __init__(
        self,
        engine: EngineClient,
        settings: ServeSettings,
        served: Served,
        eos_ids: frozenset[int] = frozenset(),
    ) -> None:
        self.settings = settings
        self.served = served
        self.created = int(time.time())
        self.draining = False
        collector = EngineCollector(served.name, lambda: engine.stats)
        self.metrics = ServerMetrics(served.name, engine.facts, collector)
        self._engine = engine
        self._eos_ids = eos_ids
        self._exchanges: set[Exchange] = set()
        self._leftovers: set[asyncio.Task[None]] = set()

    @property
    def trouble(self) -> str | None:
        """Why nothing more is taken, None if all is well."""
        if self._engine.died.done():
            return f"the engine ended: {self._engine.died.result()}."
        return "the server is shutting down." if self.draining else None

    async def answer(
        self, request: web.BaseRequest, wanted: Wanted, shape: Shape, received_s: float
    ) -> web.StreamResponse:
        """The response to a checked request. Raises ApiError."""
        exchange = Exchange(request, self._ask(wanted, received_s))
        self._exchanges.add(exchange)
        timer = self._timer(exchange)
        reply = Reply(shape, wanted, self.served.name, exchange.calls)
        try:
            if wanted.stream:
                return await exchange.streamed(reply)
            return await exchange.whole(reply)
        finally:
            if timer is not None:
                timer.cancel()
            self._leave(exchange)

    async def drain(self, patience_s: float, at_once: asyncio.Event) -> None:
        """Takes nothing more, waits until all is answered, for so long or until `at_once`, and
        ends the rest."""
        self.draining = True
        until_s = time.monotonic() + patience_s
        while self._exchanges and time.monotonic() < until_s and not at_once.is_set():
            await asyncio.sleep(LOOK_S)
        for exchange in list(self._exchanges):
            exchange.stop("shutdown")

    async def settle(self, patience_s: float, at_once: asyncio.Event) -> None:
        """Waits until the engine has ended what nobody wants any more, as long as drain() does."""
        until_s = time.monotonic() + patience_s
        while (self._exchanges or self._leftovers) and time.monotonic() < until_s:
            if at_once.is_set():
                break
            await asyncio.sleep(LOOK_S)
        for task in list(self._leftovers):
            task.cancel()

    def _ask(self, wanted: Wanted, received_s: float) -> list[EngineCall]:
        """Asks the engine, a call a prompt. Raises ApiError if it takes no more."""
        if self.trouble is not None:
            raise unavailable(self.trouble)
        self._check_queue(len(wanted.prompts))
        indexes = itertools.count()
        return [self._call(prompt, wanted, indexes, received_s) for prompt in wanted.prompts]

    def _check_queue(self, more: int) -> None:
        most = self.settings.max_queue
        if most is not None and more > most:
            raise wrong(
                "prompt",
                f"prompt has {more} prompts and {most} requests may wait "
                f"(serve.max_queue={most}): send fewer at once.",
            )
        if most is None or self._engine.running + more <= most:
            return
        calls = (call for exchange in self._exchanges for call in exchange.calls)
        waiting = sum(call.first_token_s is None for call in calls)
        if waiting + more > most:
            raise busy(
                f"{waiting} requests wait for their first token and {most} may "
                f"(serve.max_queue={most}): try again later."
            )

    def _call(
        self, prompt: list[int], wanted: Wanted, indexes: itertools.count[int], received_s: float
    ) -> EngineCall:
        told = wanted.told
        stream = self._engine.submit(
            prompt,
            wanted.max_tokens,
            received_s=received_s,
            n=wanted.n,
            temperature=wanted.temperature,
            seed=wanted.seed,
            expected_tokens=told.output_tokens,
            request_id=told.request_id,
            kind=told.kind,
            cache_salt=told.cache_salt,
            buffer_tokens=self.settings.stream_buffer_tokens,
        )
        eos_ids = frozenset[int]() if wanted.ignore_eos else self._eos_ids
        answers = [
            Answer(
                next(indexes),
                self.served.tokenizer.decoder(),
                wanted.max_tokens,
                wanted.min_tokens,
                wanted.stops,
                eos_ids,
            )
            for _ in range(wanted.n)
        ]
        return EngineCall(stream, answers, len(prompt), received_s, self.metrics)

    def _timer(self, exchange: Exchange) -> asyncio.TimerHandle | None:
        """Ends the exchange when its time is up."""
        limit_s = self.settings.request_timeout_s
        if limit_s is None:
            return None
        return asyncio.get_running_loop().call_later(limit_s, exchange.stop, "timeout")

    def _leave(self, exchange: Exchange) -> None:
        """The exchange is over, for the engine too: its client left unless all calls have ended."""
        self._exchanges.discard(exchange)
        exchange.cancel("disconnect")
        for call in exchange.calls:
            if call.ended is None:
                task = asyncio.ensure_future(call.run_out())
                self._leftovers.add(task)
                task.add_done_callback(self._leftovers.discard)
