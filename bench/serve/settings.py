"""What a server can be told (conf/serve/), and the checks of it."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from bench.errors import SettingError
from bench.serve.channel import LINE_LIMIT

KEY_VARIABLE = "FRAGBENCH_API_KEY"


@dataclass
class ServeSettings:
    """`fragbench serve`. Null takes no limit, or what suits the model."""

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    request_timeout_s: float | None = 600.0
    max_queue: int | None = 10_000
    max_body_bytes: int = 8 << 20
    body_timeout_s: float = 30.0
    drain_s: float = 30.0
    stream_buffer_tokens: int | None = 64
    tokenizer: str = "auto"
    served_model_name: str | None = None


def check_serve(serve: ServeSettings) -> None:
    """Raises SettingError for the first setting out of range."""
    _within("port", serve.port, 0, 65_535, "(0: a free port)")
    if serve.request_timeout_s is not None:
        _within("request_timeout_s", serve.request_timeout_s, 1e-3, 1e9, "seconds")
    if serve.max_queue is not None:
        _within("max_queue", serve.max_queue, 1, 1e9, "requests")
    _within("max_body_bytes", serve.max_body_bytes, 1, LINE_LIMIT // 2, "bytes")
    _within("body_timeout_s", serve.body_timeout_s, 1e-3, 1e6, "seconds")
    _within("drain_s", serve.drain_s, 0, 1e6, "seconds")
    if serve.stream_buffer_tokens is not None:
        _within("stream_buffer_tokens", serve.stream_buffer_tokens, 1, 1e9, "tokens")
    for name in ("host", "api_key", "tokenizer", "served_model_name"):
        if getattr(serve, name) == "":
            raise SettingError(f"serve.{name} is empty: give a value, or leave it out.")


def api_key(serve: ServeSettings) -> str | None:
    """The key that clients must send, from the setting or from the environment."""
    return serve.api_key or os.environ.get(KEY_VARIABLE) or None


def _within(name: str, value: float, least: float, most: float, unit: str) -> None:
    if not (least <= value <= most and math.isfinite(value)):  # NaN is in no range
        raise SettingError(
            f"serve.{name}={value} is out of range: give a number from {least:,.12g} to "
            f"{most:,.12g} {unit}."
        )
