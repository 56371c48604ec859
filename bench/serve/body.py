"""A request's body: read within limits of size and time, and understood as a JSON object."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web
from aiohttp.http import HttpProcessingError

from bench.serve.openai_errors import ApiError

JSON_TYPE = "application/json"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE = {"Connection": "close"}
"""What is left of the body is not read, so nothing more can come on the connection."""


async def read_object(request: web.BaseRequest, most_bytes: int, within_s: float) -> dict[str, Any]:
    """The JSON object that the request carries. Raises ApiError: 400 for what is none, 408, 413 and
    415 for its time, size and type; ConnectionError if the client left."""
    if request.content_type != JSON_TYPE or (request.charset or "utf-8").lower() != "utf-8":
        raise ApiError(
            415,
            f"the body is to be {JSON_TYPE} in UTF-8: send the header Content-Type: {JSON_TYPE}.",
            headers=_CLOSE,
        )
    if (request.content_length or 0) > most_bytes:
        raise _too_large(most_bytes)
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(_CONTINUE)
        request.writer.output_size = 0  # the response has not begun
    try:
        async with asyncio.timeout(within_s):
            data = await _read(request, most_bytes)
    except TimeoutError:
        raise ApiError(
            408,
            f"the body took longer than {within_s:g} s: send it faster.",
            code="timeout",
            headers=_CLOSE,
        ) from None
    except (HttpProcessingError, web.RequestPayloadError) as error:
        raise ApiError(400, "the body's encoding is broken.", headers=_CLOSE) from error
    return _parse(data)


async def _read(request: web.BaseRequest, most_bytes: int) -> bytes:
    data = bytearray()
    async for piece in request.content.iter_any():
        data += piece
        if len(data) > most_bytes:
            raise _too_large(most_bytes)
    return bytes(data)


def _too_large(most_bytes: int) -> ApiError:
    return ApiError(
        413,
        f"the body is larger than {most_bytes} bytes (serve.max_body_bytes): send less.",
        headers=_CLOSE,
    )


def _parse(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body is no UTF-8 at byte {error.start}.") from error
    except RecursionError as error:
        raise ApiError(400, "the body's JSON is nested too deeply.") from error
    except ValueError as error:
        raise ApiError(400, f"the body is no JSON: {str(error)[:100]}.") from error
    if not isinstance(value, dict):
        raise ApiError(400, "the body is to be a JSON object.")
    return value
