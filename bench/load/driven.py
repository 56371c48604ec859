"""A run with driver=locust: our server, Locust against it, and one folder of results from both."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.config import from_container
from bench.device.job import report_progress
from bench.errors import SettingError
from bench.load.command import count_requests, reach
from bench.load.joined import join
from bench.load.payload import Payload
from bench.load.processes import send_traffic
from bench.plugins import make

SERVER = "bench.load.server_process"
SERVER_LOG = "server.log"
STOP_S = 60.0
"""That the server gets to end what runs and write its files."""


def run(payload: dict[str, Any]) -> None:
    """As bench.run.run, over HTTP: the same files, and `client/` and `server_requests/`, from which
    `requests/` and the summary's latencies are made (bench/load/joined.py).

    Raises SettingError, BackendError or WorkloadError before anything is written.
    """
    started = time.monotonic()
    container = _served(payload["config"])
    config = from_container(container)
    workload = make(container["workload"], "workload")
    expected = count_requests(workload, config)
    folder = Path(payload["out"])
    with _server(payload | {"config": container}) as url:
        load = reach(replace(config.load, url=url))
        traffic = Payload(
            load=load,
            workload=container["workload"],
            seed=config.seed,
            stop_after_s=config.stop_after_s,
            vocab_size=config.model.vocab_size,
            workers=load.expect_workers or load.processes,
            expected=expected,
        )
        facts = send_traffic(traffic, folder, _report)
    facts["workload"] = workload.name
    join(folder, load, facts, started)


def _served(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with a server that takes a free port and all that is sent to it."""
    return config | {"serve": config["serve"] | {"host": "127.0.0.1", "port": 0}}


@contextlib.contextmanager
def _server(payload: dict[str, Any]) -> Iterator[str]:
    """A server in a process of its own, and its address. Raises SettingError."""
    process = subprocess.Popen(
        [sys.executable, "-m", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # who stops it is this process
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(payload | {"parent": os.getpid()}))
        process.stdin.close()
        said = json.loads(process.stdout.readline() or "{}")
        if "url" not in said:
            raise SettingError(said.get("cause") or "the server ended before it listened.")
        yield said["url"]
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_S)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _report(progress: dict[str, Any]) -> None:
    ended = sum(progress["ended"].values())
    report_progress(
        {
            "simulated_s": max(progress["at_s"], 0.0),
            "ended": ended,
            "expected": progress["expected"],
            "running": None,
            "waiting": None,
        }
    )
