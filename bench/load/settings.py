"""What traffic over HTTP can be told (conf/load/), and the checks of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from bench.errors import SettingError
from bench.setting_checks import choice, header_value, within

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


def on_clients_clock(load: LoadSettings, time_scale: float) -> LoadSettings:
    """The settings of clients of an engine `time_scale` of whose seconds pass in one of theirs:
    what it is to meet after a time of its own comes so much sooner for them."""
    leave, slow, retries = load.leave, load.slow_readers, load.retries
    return replace(
        load,
        stagger_s=load.stagger_s / time_scale,
        timeout_s=load.timeout_s / time_scale,
        retries=replace(retries, backoff_s=retries.backoff_s / time_scale),
        slow_readers=replace(slow, tokens_per_s=slow.tokens_per_s * time_scale),
        leave=replace(
            leave,
            after_s=[at_s / time_scale for at_s in leave.after_s],
            before_first_token_s=leave.before_first_token_s / time_scale,
        ),
    )


def check_load(load: LoadSettings) -> None:
    """Raises SettingError for the first setting out of range."""
    if load.url is not None:
        check_url(load.url)
    header_value("load.api_key", load.api_key)
    choice("load.endpoint", load.endpoint, tuple(ENDPOINTS))
    choice("load.prompt_as", load.prompt_as, PROMPTS)
    for name, most, unit in (
        ("vocab_size", 2**31 - 1, "tokens"),
        ("users", 100_000, "users"),
        ("processes", 256, "processes"),
        ("expect_workers", 4096, "workers"),
    ):
        if getattr(load, name) is not None:
            within(f"load.{name}", getattr(load, name), 1, most, unit)
    within("load.connections", load.connections, 0, 60_000, "connections")
    within("load.master_port", load.master_port, 0, 65_535, "(0: a free port)")
    within("load.web_port", load.web_port, 1, 65_535, "(a port)")
    for name in ("stagger_s", "warm_up_s", "cool_down_s"):
        within(f"load.{name}", getattr(load, name), 0, 1e6, "seconds")
    within("load.timeout_s", load.timeout_s, 1e-3, 1e6, "seconds")
    if load.temperature is not None:
        within("load.temperature", load.temperature, 0, 100, "(0: the likeliest token)")
    _check_workers(load)
    _check_clients(load)


def _check_workers(load: LoadSettings) -> None:
    if load.master_host is not None and not load.master_port:
        raise SettingError(
            f"load.master_host={load.master_host} needs load.master_port: give the port that its "
            "master was started with."
        )
    if load.expect_workers is not None and load.expect_workers < load.processes:
        raise SettingError(
            f"load.expect_workers={load.expect_workers} is fewer than the load.processes="
            f"{load.processes} of this machine alone: give how many workers there are on all "
            "machines together."
        )


def _check_clients(load: LoadSettings) -> None:
    within("load.retries.limit", load.retries.limit, 0, 100, "retries")
    within("load.retries.backoff_s", load.retries.backoff_s, 0, 1e4, "seconds")
    within("load.slow_readers.share", load.slow_readers.share, 0, 1, "(a share)")
    rate = load.slow_readers.tokens_per_s
    within("load.slow_readers.tokens_per_s", rate, 1e-3, 1e6, "tokens/s")
    leave = load.leave
    within("load.leave.share", leave.share, 0, 1, "(a share)")
    within("load.leave.before_first_token_s", leave.before_first_token_s, 0, 1e6, "seconds")
    for kind in leave.kinds:
        choice("load.leave.kinds", kind, LEAVING)
    if not leave.kinds:
        raise SettingError(f"load.leave.kinds is empty: give some of {', '.join(LEAVING)}.")
    _pair("load.leave.after_s", leave.after_s, 0, "seconds, such as [0.1, 5]")
    _pair("load.leave.after_tokens", leave.after_tokens, 1, "tokens, such as [1, 64]")


def check_url(url: str) -> None:
    """Raises SettingError unless it is the address of a server."""
    if "@" in url:  # not shown: what is before it may be a password
        raise SettingError(
            "load.url has a user or a password, which is not sent: leave out what is before the @, "
            "and give load.api_key for a server that wants a key."
        )
    if not _is_address(url):
        raise SettingError(
            f"load.url={url} is no address of a server: give one such as http://127.0.0.1:8000, "
            "with a path if it has one, without spaces, ? and #."
        )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port_is_wrong = parts.port == 0
    except ValueError:  # a port that is none
        return False
    whole = url.isascii() and url.isprintable() and not set(" ?#") & set(url)
    return (
        whole and parts.scheme in ("http", "https") and bool(parts.hostname) and not port_is_wrong
    )


def _pair(setting: str, values: list[float] | list[int], least: float, what: str) -> None:
    ordered = len(values) == 2 and least <= values[0] <= values[1] < math.inf
    if not ordered:
        raise SettingError(
            f"{setting}={values} is no range: give two numbers from {least} up, the smaller first, "
            f"of {what}."
        )
