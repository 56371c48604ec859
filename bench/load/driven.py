"""A run with driver=locust: our server, Locust against it, and one folder of results from both."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.config import from_container
from bench.device.job import report_progress
from bench.labels import labels
from bench.load.command import check_traffic, payload_of, reach
from bench.load.joined import Served, join
from bench.load.own_server import OwnServer
from bench.load.ports import check_ports
from bench.load.processes import send_traffic
from bench.plugins import make
from bench.serve.settings import api_key
from bench.turns import loop_name


def run(payload: dict[str, Any]) -> None:
    """As bench.run.run, over HTTP: the same files, and `client/` and `server_requests/`, from which
    `requests/` and the summary's latencies are made (bench/load/joined.py).

    Raises SettingError, BackendError or WorkloadError before anything is written.
    """
    started = time.monotonic()
    container = _served(payload["config"])
    config = from_container(container)
    workload = make(container["workload"], "workload")
    expected = check_traffic(workload, config)
    folder = Path(payload["out"])
    check_ports(config.load)
    key = config.load.api_key or api_key(config.serve)
    with OwnServer(payload | {"config": container}) as server:
        load = reach(replace(config.load, url=server.url, api_key=key))
        traffic = payload_of(config, container, load, workload, expected)
        facts = send_traffic(traffic, folder, _report, server.ended)
        failed = server.stop()
    named = labels(container, payload["device"])
    named |= {"workload": workload.name, "loop": loop_name(workload)}
    join(folder, load, facts, Served(named, config.time_scale, failed), started)


def _served(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with a server that takes a free port and all that is sent to it."""
    return config | {"serve": config["serve"] | {"host": "127.0.0.1", "port": 0}}


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
