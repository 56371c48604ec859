"""What traffic over HTTP can be told (conf/load/), and the checks of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from bench.errors import SettingError

ENDPOINTS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
PROMPTS = ("ids", "text")
LEAVING = ("after_s", "after_tokens", "before_first_token")


@dataclass
class LeaveSettings:
    """Clients that close their connection before the answer's end.

    A `share` of requests, each in one of `kinds`, drawn with the moment from its request id:
    `after_s` seconds after it was sent (uniform between two), `after_tokens` tokens (likewise), or
    `before_first_token`, at once or as much as `before_first_token_s` later.
    """

    share: float = 0.0
    kinds: list[str] = field(default_factory=lambda: list(LEAVING))
    after_s: list[float] = field(default_factory=lambda: [0.1, 5.0])
    after_tokens: list[int] = field(default_factory=lambda: [1, 64])
    before_first_token_s: float = 0.05


@dataclass
class SlowReaderSettings:
    """Clients that take `tokens_per_s` and leave the rest in the socket."""

    share: float = 0.0
    tokens_per_s: float = 5.0


@dataclass
class RetrySettings:
    """What is tried again, `limit` times at most: 429, 503 and refused connections, after what
    Retry-After says or else `backoff_s`, doubled each time, of which a drawn half to whole."""

    limit: int = 0
    backoff_s: float = 0.5


@dataclass
class LoadSettings:
    """Traffic against a running server (conf/load/)."""

    url: str | None = None
    model: str | None = None  # as the server calls it
    api_key: str | None = None
    endpoint: str = "completions"
    prompt_as: str = "ids"
    vocab_size: int | None = None
    ignore_eos: bool = True
    temperature: float | None = None
    tell_lengths: bool | None = None
    users: int | None = None
    stagger_s: float = 0.01
    timeout_s: float = 600.0
    connections: int = 64
    processes: int = 1
    expect_workers: int | None = None
    master_host: str | None = None
    master_port: int = 0
    bind_host: str = "127.0.0.1"
    web_ui: bool = False
    web_port: int = 8089
    warm_up_s: float = 0.0
    cool_down_s: float = 0.0
    retries: RetrySettings = field(default_factory=RetrySettings)
    leave: LeaveSettings = field(default_factory=LeaveSettings)
    slow_readers: SlowReaderSettings = field(default_factory=SlowReaderSettings)


def check_load(load: LoadSettings) -> None:
    """Raises SettingError for the first setting out of range."""
    if load.url is not None:
        check_url(load.url)
    _choice("load.endpoint", load.endpoint, tuple(ENDPOINTS))
    _choice("load.prompt_as", load.prompt_as, PROMPTS)
    for name, most, unit in (
        ("vocab_size", 2**31 - 1, "tokens"),
        ("users", 100_000, "users"),
        ("processes", 256, "processes"),
        ("expect_workers", 4096, "workers"),
    ):
        if getattr(load, name) is not None:
            _within(f"load.{name}", getattr(load, name), 1, most, unit)
    _within("load.connections", load.connections, 0, 60_000, "connections")
    _within("load.master_port", load.master_port, 0, 65_535, "(0: a free port)")
    _within("load.web_port", load.web_port, 1, 65_535, "(a port)")
    for name in ("stagger_s", "warm_up_s", "cool_down_s"):
        _within(f"load.{name}", getattr(load, name), 0, 1e6, "seconds")
    _within("load.timeout_s", load.timeout_s, 1e-3, 1e6, "seconds")
    if load.temperature is not None:
        _within("load.temperature", load.temperature, 0, 100, "(0: the likeliest token)")
    _check_clients(load)


def _check_clients(load: LoadSettings) -> None:
    _within("load.retries.limit", load.retries.limit, 0, 100, "retries")
    _within("load.retries.backoff_s", load.retries.backoff_s, 0, 1e4, "seconds")
    _within("load.slow_readers.share", load.slow_readers.share, 0, 1, "(a share)")
    rate = load.slow_readers.tokens_per_s
    _within("load.slow_readers.tokens_per_s", rate, 1e-3, 1e6, "tokens/s")
    leave = load.leave
    _within("load.leave.share", leave.share, 0, 1, "(a share)")
    _within("load.leave.before_first_token_s", leave.before_first_token_s, 0, 1e6, "seconds")
    for kind in leave.kinds:
        _choice("load.leave.kinds", kind, LEAVING)
    if not leave.kinds:
        raise SettingError(f"load.leave.kinds is empty: give some of {', '.join(LEAVING)}.")
    _pair("load.leave.after_s", leave.after_s, 0, "seconds, such as [0.1, 5]")
    _pair("load.leave.after_tokens", leave.after_tokens, 1, "tokens, such as [1, 64]")


def check_url(url: str) -> None:
    """Raises SettingError unless it is the address of a server."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is none
        usable = None
    if not usable:
        raise SettingError(
            f"load.url={url} is no address of a server: give one such as http://127.0.0.1:8000."
        )


def _choice(setting: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise SettingError(f"{setting}={value} is unknown: choose from {', '.join(allowed)}.")


def _within(setting: str, value: float, least: float, most: float, unit: str) -> None:
    if not least <= value <= most:  # NaN is in no range
        raise SettingError(
            f"{setting}={value} is out of range: give a number from {least:,.12g} to "
            f"{most:,.12g} {unit}."
        )


def _pair(setting: str, values: list[float] | list[int], least: float, what: str) -> None:
    ordered = len(values) == 2 and least <= values[0] <= values[1] < math.inf
    if not ordered:
        raise SettingError(
            f"{setting}={values} is no range: give two numbers from {least} up, the smaller first, "
            f"of {what}."
        )
