"""Refusals as OpenAI's servers word them: a status and {"error": {message, type, param, code}}."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web

SHOWN_CHARACTERS = 60
RETRY_AFTER_S = 1


class ApiError(Exception):
    """A request that gets no answer. `status` is HTTP's; `param` names the field at fault."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The object that OpenAI's clients raise as an APIError."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = {401: "authentication_error", 429: "rate_limit_error"}.get(self.status, kind)
        error = {
            "message": self.message,
            "type": kind,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}

    def response(self) -> web.Response:
        """The whole answer."""
        return web.json_response(self.body(), status=self.status, headers=self.headers)


def wrong(param: str, message: str, code: str | None = None) -> ApiError:
    """A field that cannot be used. `message` names it."""
    return ApiError(400, message, param=param, code=code)


def busy(message: str) -> ApiError:
    """Too much is asked for at once."""
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    return ApiError(429, message, code="queue_full", headers=headers)


def unavailable(message: str) -> ApiError:
    """Nothing more is answered here, or not now."""
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    return ApiError(503, message, code="unavailable", headers=headers)


def shown(value: object) -> str:
    """A received value, as long as a message can hold."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, str) and len(value) > SHOWN_CHARACTERS:
        return json.dumps(f"{value[:SHOWN_CHARACTERS]}...")
    return json.dumps(value)
