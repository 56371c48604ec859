"""The HTTP side: routes, the API key, and an OpenAI-style object for whatever goes wrong."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from bench.serve.api import Served, Wanted, chat_wanted, completion_wanted
from bench.serve.body import read_object
from bench.serve.openai_errors import ApiError, shown, unavailable
from bench.serve.reply import ChatShape, CompletionShape, Shape
from bench.serve.service import Service

_LOG = logging.getLogger(__name__)
MODELS = "/v1/models"
LARGE_BYTES = 64 << 10
"""A larger body is made to tokens in a thread: others wait for a few milliseconds at most."""

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class App:
    """Answers HTTP requests for a service. `key` None lets everybody in."""

    def __init__(self, service: Service, key: str | None) -> None:
        self._service = service
        self._key = None if key is None else key.encode()
        self._routes: dict[str, tuple[str, Handler]] = {
            "/v1/completions": ("POST", self._completions),
            "/v1/chat/completions": ("POST", self._chat),
            MODELS: ("GET", self._models),
            f"{MODELS}/{service.served.name}": ("GET", self._model),
            "/health": ("GET", self._health),
            "/metrics": ("GET", self._metrics),
        }

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The response, which is an error object unless the request got what it asked for."""
        try:
            return await self._handler(request)(request)
        except ApiError as error:
            refusal = error
        except ConnectionError:
            raise
        except Exception:
            _LOG.exception("%s %s failed", request.method, request.path)
            refusal = ApiError(500, "the server failed; its log says why.", code="internal_error")
        self._service.metrics.refused(refusal.status)
        return refusal.response()

    def _handler(self, request: web.BaseRequest) -> Handler:
        """Raises ApiError: 401, 404 or 405."""
        path = request.path
        if path.startswith("/v1/"):
            self._check_key(request)
        if path not in self._routes:
            model = path.startswith(f"{MODELS}/")
            what = f"the model {shown(path[len(MODELS) + 1 :])}" if model else shown(path)
            code = "model_not_found" if model else "not_found"
            raise ApiError(404, f"{what} is not here: see {', '.join(self._routes)}.", code=code)
        method, handler = self._routes[path]
        if request.method != method:
            raise ApiError(
                405,
                f"{path} takes {method}, not {shown(request.method)}.",
                code="method_not_allowed",
                headers={"Allow": method},
            )
        return handler

    def _check_key(self, request: web.BaseRequest) -> None:
        if self._key is None:
            return
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        sent = given.strip().encode("utf-8", "surrogateescape")
        if scheme.lower() != "bearer" or not hmac.compare_digest(sent, self._key):
            raise ApiError(
                401,
                "the API key is missing or wrong: send the header Authorization: Bearer KEY.",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    async def _completions(self, request: web.BaseRequest) -> web.StreamResponse:
        return await self._answer(request, completion_wanted, CompletionShape())

    async def _chat(self, request: web.BaseRequest) -> web.StreamResponse:
        return await self._answer(request, chat_wanted, ChatShape())

    async def _answer(
        self,
        request: web.BaseRequest,
        wanted: Callable[[dict[str, Any], Served], Wanted],
        shape: Shape,
    ) -> web.StreamResponse:
        received_s = time.monotonic()
        service = self._service
        limits = service.settings
        body = await read_object(request, limits.max_body_bytes, limits.body_timeout_s)
        if request.content.total_bytes > LARGE_BYTES:
            asked = await asyncio.to_thread(wanted, body, service.served)
        else:
            asked = wanted(body, service.served)
        return await service.answer(request, asked, shape, received_s)

    async def _models(self, request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"object": "list", "data": [self._served()]})

    async def _model(self, request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response(self._served())

    def _served(self) -> dict[str, Any]:
        served = self._service.served
        return {
            "id": served.name,
            "object": "model",
            "created": self._service.created,
            "owned_by": "fragbench",
            "max_model_len": served.max_model_len,
            "vocab_size": served.vocab_size,
        }

    async def _health(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._service.trouble is not None:
            raise unavailable(self._service.trouble)
        return web.json_response({"status": "ok"})

    async def _metrics(self, request: web.BaseRequest) -> web.StreamResponse:
        # Always Prometheus's own format: in OpenMetrics the client library writes vllm_ for vllm:
        encode, content_type = choose_encoder("")
        text = encode(self._service.metrics.registry)
        return web.Response(body=text, headers={"Content-Type": content_type})


class Connection(web.RequestHandler):
    """A client's connection, whose malformed requests get error objects too."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What aiohttp answers to what is no HTTP."""
        if request.writer.output_size > 0:
            raise ConnectionError("the response has begun: no other can be sent")
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            _LOG.error("a response failed", exc_info=exc)
        said = "the request is no HTTP/1.1 that can be read."
        response = ApiError(status, said, code="bad_request").response()
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """aiohttp reads on in a body that was refused, and would log that it is still broken."""
        if not isinstance(kw.get("exc_info"), web.RequestPayloadError):
            super().log_exception(*args, **kw)
