"""What one process of several serves of a workload: the requests of its time. In a process of its
own on the virtual GPU."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from bench.config import from_container
from bench.engine.driver import drive
from bench.engine.users import Users
from bench.plugins import make
from bench.run import Run
from workloads.base import Request, Workload


def run(payload: dict[str, Any]) -> None:
    """`payload`: a run's, and `start_s` and `stop_s`, between which its requests come. It serves
    all of them to the end; its clock is 0 at `start_s`. Leaves the run's files."""
    config = from_container(payload["config"])
    workload: Workload = make(payload["config"]["workload"], "workload")
    listener = Run(config, payload, time.monotonic(), {"workload": workload.name, "loop": "open"})
    mine = _between(workload.requests(config.seed), payload["start_s"], payload["stop_s"])
    users = Users(listener.engine, mine)
    listener.go(partial(drive, users=users, stop_after_s=None))


def _between(requests: Iterator[Request], start_s: float, stop_s: float) -> Iterator[Request]:
    for request in requests:
        if start_s <= request.scheduled_s < stop_s:
            yield replace(request, scheduled_s=request.scheduled_s - start_s)
