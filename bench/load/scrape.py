"""A server's own gauges, read from its /metrics once a second, whichever server it is.

Names as of vLLM (V1, and `gpu_cache_usage_perc` before it), SGLang, TGI and llama.cpp.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import NamedTuple

import gevent
from geventhttpclient import HTTPClient
from geventhttpclient.response import HTTPParseError

from bench.load.connections import Server

INTERVAL_S = 1.0
TIMEOUT_S = 5.0
OK = 200

NAMES: dict[str, tuple[str, ...]] = {
    "running": (
        "vllm:num_requests_running",
        "sglang:num_running_reqs",
        "tgi_batch_current_size",
        "llamacpp:requests_processing",
    ),
    "waiting": (
        "vllm:num_requests_waiting",
        "sglang:num_queue_reqs",
        "tgi_queue_size",
        "llamacpp:requests_deferred",
    ),
    "kv_usage": (
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        "sglang:token_usage",
        "llamacpp:kv_cache_usage_ratio",
    ),
    "preemptions": ("vllm:num_preemptions_total",),
}
"""Shares run from 0 to 1 in all of them, whatever a name says of percent."""

MEANS = ("kv_usage",)
"""Of several engines behind one page; the others are summed."""

_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{.*\})?\s+(\S+)")


class Sample(NamedTuple):
    """One look. None: the server has no such metric."""

    time_s: float
    running: float | None
    waiting: float | None
    kv_usage: float | None
    preemptions: float | None
    scrape_s: float


def read_metrics(page: str) -> dict[str, float | None]:
    """The columns of NAMES out of a page in Prometheus' text format; a value of each engine or
    rank behind it counts."""
    values: dict[str, list[float]] = {}
    for line in page.splitlines():
        match = _SAMPLE.match(line)
        if match and not line.startswith("#"):
            try:
                values.setdefault(match[1], []).append(float(match[2]))
            except ValueError:
                continue
    return {column: _first(column, names, values) for column, names in NAMES.items()}


def _first(column: str, names: tuple[str, ...], values: dict[str, list[float]]) -> float | None:
    found = next((values[name] for name in names if name in values), None)
    if found is None:
        return None
    return sum(found) / len(found) if column in MEANS else sum(found)


class Scraper:
    """Looks every INTERVAL_S from `start_s` on and gives what it saw to `on_sample`, until the
    server shows that it has no such page."""

    def __init__(
        self,
        server: Server,
        api_key: str | None,
        start_s: float,
        on_sample: Callable[[Sample], None],
    ) -> None:
        self._client = HTTPClient(
            server.host,
            server.port,
            ssl=server.tls,
            connection_timeout=TIMEOUT_S,
            network_timeout=TIMEOUT_S,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
        )
        self._path = f"{server.base}/metrics"
        self._start_s = start_s
        self._on_sample = on_sample

    def run(self) -> None:
        """Until killed. A look that fails is left out: the server may be busy."""
        gevent.sleep(max(self._start_s - time.monotonic(), 0))
        while True:
            asked_s = time.monotonic()
            if not self.look():
                return  # a server that has no such page will not get one
            gevent.sleep(max(INTERVAL_S - (time.monotonic() - asked_s), 0))

    def look(self) -> bool:
        """Looks once; whether there may be more to see."""
        asked_s = time.monotonic()
        page = self._page()
        took_s = time.monotonic() - asked_s
        if page is None:
            return True
        columns = read_metrics(page)
        if all(value is None for value in columns.values()):
            return False
        self._on_sample(Sample(time_s=asked_s - self._start_s, **columns, scrape_s=took_s))
        return True

    def _page(self) -> str | None:
        """What the server shows; an empty page where it says that there is none."""
        try:
            answer = self._client.get(self._path)
            content = answer.read().decode(errors="replace")
        except (OSError, HTTPParseError):
            return None
        return content if answer.status_code == OK else ""
