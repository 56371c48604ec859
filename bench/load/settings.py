"""What traffic over HTTP can be told (conf/load/), and the checks of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from bench.errors import SettingError
from bench.setting_checks import choice, header_value, within

ENDPOINTS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
PROMPTS = ("ids", "text")


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


def on_clients_clock(load: LoadSettings, time_scale: float) -> LoadSettings:
    """The settings of clients of an engine `time_scale` of whose seconds pass in one of theirs:
    what it is to meet after a time of its own comes so much sooner for them."""
    retries = load.retries
    return replace(
        load,
        timeout_s=load.timeout_s / time_scale,
        retries=replace(retries, backoff_s=retries.backoff_s / time_scale),
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
        ("processes", 256, "processes"),
        ("expect_workers", 4096, "workers"),
    ):
        if getattr(load, name) is not None:
            within(f"load.{name}", getattr(load, name), 1, most, unit)
    within("load.connections", load.connections, 0, 60_000, "connections")
    within("load.master_port", load.master_port, 0, 65_535, "(0: a free port)")
    within("load.web_port", load.web_port, 1, 65_535, "(a port)")
    for name in ("warm_up_s", "cool_down_s"):
        within(f"load.{name}", getattr(load, name), 0, 1e6, "seconds")
    within("load.timeout_s", load.timeout_s, 1e-3, 1e6, "seconds")
    if load.temperature is not None:
        within("load.temperature", load.temperature, 0, 100, "(0: the likeliest token)")
    within("load.retries.limit", load.retries.limit, 0, 100, "retries")
    within("load.retries.backoff_s", load.retries.backoff_s, 0, 1e4, "seconds")
    _check_workers(load)


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
