"""A client in this process, for tests; Locust is in the tests of whole runs."""

from __future__ import annotations

import time
from typing import Any

import gevent

from bench.load.asking import Asker
from bench.load.client import Client, Row
from bench.load.connections import Connections, Server
from bench.load.settings import LoadSettings
from workloads.base import Request

VOCAB = 1000


def asker(url: str, **settings: Any) -> Asker:
    load = LoadSettings(url=url, model="scripted", **settings)
    return Asker(load, VOCAB, Server.at(url))


def play(
    url: str, *requests: Request, seed: int = 0, time_scale: float = 1.0, **settings: Any
) -> list[Row]:
    """Plays sessions at once and gives the rows of all attempts in order of request and attempt."""
    load = LoadSettings(url=url, model="scripted", **settings)
    server = Server.at(url)
    rows: list[Row] = []
    connections = Connections(server)
    client = Client(
        load,
        Asker(load, VOCAB, server),
        connections,
        seed=seed,
        worker=0,
        time_scale=time_scale,
        on_row=rows.append,
        on_end=lambda exchange: None,
    )
    client.start_s = time.monotonic()
    sessions = [gevent.spawn(client.play, request, client.start_s) for request in requests]
    gevent.joinall(sessions, raise_error=True)
    connections.close()
    return sorted(rows, key=lambda row: (row["request_id"], row["attempt"]))


def request(number: int = 0, output_tokens: int = 5, **more: Any) -> Request:
    more = {"scheduled_s": 0.0, "prompt_tokens": 4} | more
    return Request(request_id=number, output_tokens=output_tokens, **more)
