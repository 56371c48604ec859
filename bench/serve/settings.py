"""What a server can be told (conf/serve/), and the checks of it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from bench.errors import SettingError
from bench.serve.channel import LINE_LIMIT
from bench.setting_checks import within

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
    within("serve.port", serve.port, 0, 65_535, "(0: a free port)")
    if serve.request_timeout_s is not None:
        within("serve.request_timeout_s", serve.request_timeout_s, 1e-3, 1e9, "seconds")
    if serve.max_queue is not None:
        within("serve.max_queue", serve.max_queue, 1, 1e9, "requests")
    within("serve.max_body_bytes", serve.max_body_bytes, 1, LINE_LIMIT // 2, "bytes")
    within("serve.body_timeout_s", serve.body_timeout_s, 1e-3, 1e6, "seconds")
    within("serve.drain_s", serve.drain_s, 0, 1e6, "seconds")
    if serve.stream_buffer_tokens is not None:
        within("serve.stream_buffer_tokens", serve.stream_buffer_tokens, 1, 1e9, "tokens")
    for name in ("host", "api_key", "tokenizer", "served_model_name"):
        if getattr(serve, name) == "":
            raise SettingError(f"serve.{name} is empty: give a value, or leave it out.")
    _check_key("serve.api_key", serve.api_key)


def api_key(serve: ServeSettings) -> str | None:
    """The key that clients must send, from the setting or from the environment. Raises
    SettingError."""
    if serve.api_key:
        return serve.api_key
    _check_key(KEY_VARIABLE, key := os.environ.get(KEY_VARIABLE) or None)
    return key


def _check_key(setting: str, key: str | None) -> None:
    """Refuses what no client can send in a header; the key is shown to nobody."""
    if key is not None and (key != key.strip() or not key.isprintable()):
        raise SettingError(
            f"{setting} has a line break, another control character or a space at an end, which no "
            "client can send: give the key alone."
        )
