"""Locust's master: it starts the workers together, writes what they send, and shows the page.

It sends no requests itself, so that writing files never delays a measured time.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import gevent
import locust.runners
from gevent.event import Event
from locust.env import Environment
from locust.rpc import Message

from bench.load import messages
from bench.load.connections import Server
from bench.load.cpu import CpuMonitor
from bench.load.messages import Begin, Start
from bench.load.payload import STOPPED, Payload
from bench.load.records import ATTEMPTS, SCRAPED
from bench.load.scrape import Sample, Scraper
from bench.load.users import user_class
from bench.metrics.records import PartWriter, write_json

TICK_S = 0.25
FLUSH_S = 4.0
LAST_LOOK_S = 0.5
"""From the last answer to the last look at the server, whose gauges may lag: what it then holds,
nobody asked for."""
HALT_S = 5.0
"""Time for workers that were told to halt."""
PATIENCE_BEATS = 60
"""Seconds without a sign of life after which Locust gives a worker up. Its own 3 are fewer than a
saturated worker may need, and it would then stop the run."""


def run_master(payload: Payload, folder: Path) -> None:
    """Runs the traffic and leaves `client/`, `scraped/` and load.json in `folder`.

    Prints JSON lines: {"port": ...} when workers can connect, {"progress": ...} as it goes, and
    {"refused": cause} instead of a result.
    """
    locust.runners.HEARTBEAT_LIVENESS = PATIENCE_BEATS
    environment = Environment(user_classes=[user_class(lambda: None)])
    load = payload.load
    runner = environment.create_master_runner(load.bind_host, load.master_port)
    if load.web_ui:
        environment.create_web_ui(load.bind_host, load.web_port)
    say({"port": runner.server.port})
    master = _Master(payload, folder, runner)
    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, master.halt)
    try:
        master.run()
    finally:
        runner.quit()


def say(content: dict[str, Any]) -> None:
    """A line to the parent."""
    print(json.dumps(content), flush=True)


class _Master:
    def __init__(self, payload: Payload, folder: Path, runner: Any) -> None:
        self._payload = payload
        self._folder = folder
        self._runner = runner
        self._halted = Event()
        self._indexes: dict[str, int] = {}
        self._prepared: set[str] = set()
        self._done: dict[str, dict[str, Any]] = {}
        self._cause: str | None = None
        self._statuses: Counter[str] = Counter()
        runner.environment.events.test_stopping.add_listener(lambda **_: self.halt())
        for name, listener in (
            (messages.PREPARED, self._on_prepared),
            (messages.REFUSED, self._on_refused),
            (messages.ROWS, self._on_rows),
            (messages.DONE, self._on_done),
        ):
            runner.register_message(name, listener)

    def halt(self) -> None:
        """Ends the run early; what is open ends as unfinished."""
        self._halted.set()

    def run(self) -> None:
        """From the workers' arrival to load.json."""
        if not self._gather() or not self._prepare():
            if self._cause:
                say({"refused": self._cause})
            return
        self._writer = PartWriter(self._folder / "client", ATTEMPTS)
        self._scraped = PartWriter(self._folder / "scraped", SCRAPED)
        self._cpu = CpuMonitor()
        self._start = self._begin()
        scraper = self._scraper()
        scraping = gevent.spawn(scraper.run)
        self._watch()
        if not scraping.ready():
            scraping.kill()
            gevent.sleep(LAST_LOOK_S)
            scraper.look()
        self._flush()
        self._write_facts()

    def _gather(self) -> bool:
        """Waits for the workers; whether they came."""
        while len(self._runner.clients.ready) < self._payload.workers:
            if self._halted.wait(TICK_S):
                return False
        ids = sorted(client.id for client in self._runner.clients.ready)
        self._indexes = {worker: index for index, worker in enumerate(ids)}
        return True

    def _prepare(self) -> bool:
        """Tells the workers what to make ready; whether all are."""
        payload = self._payload.plain()
        for worker, index in self._indexes.items():
            content = {"payload": payload, "index": index}
            self._runner.send_message(messages.PREPARE, content, worker)
        while len(self._prepared) < len(self._indexes):
            self._look_for_lost()
            if self._cause or self._halted.wait(TICK_S):
                return False
        return True

    def _begin(self) -> Start:
        """Has Locust start the users and tells each worker which they are and when to begin."""
        users = self._payload.users or len(self._indexes)
        self._runner.start(users, spawn_rate=users)
        start, first = Start.soon(), 0
        for worker in self._indexes:
            own = self._runner.clients[worker].user_count
            self._runner.send_message(messages.BEGIN, Begin(start, first, own, users), worker)
            first += own
        assert first == users, f"{first} of {users} users were started"
        return start

    def _scraper(self) -> Scraper:
        load = self._payload.load
        assert load.url is not None
        server = Server.at(load.url)
        start_s = self._start.here()
        return Scraper(server, load.api_key, start_s, self._on_sample)

    def _watch(self) -> None:
        """Until every worker is done, or as long as those that were told to halt may take."""
        flushed_s = time.monotonic()
        end_s = float("inf")
        while len(self._done) < len(self._indexes) and time.monotonic() < end_s:
            gevent.sleep(TICK_S)
            self._look_for_lost()
            if (self._halted.is_set() or self._cause) and end_s == float("inf"):
                end_s = time.monotonic() + HALT_S
                for worker in self._indexes.keys() - self._done.keys():
                    self._runner.send_message(messages.HALT, None, worker)
            if time.monotonic() - flushed_s > FLUSH_S:
                flushed_s = time.monotonic()
                self._flush()
            self._report()

    def _look_for_lost(self) -> None:
        if self._halted.is_set():  # workers that Locust stopped come and go
            return
        lost = [worker for worker in self._indexes if worker not in self._runner.clients]
        if set(lost) - self._done.keys() and not self._cause:
            index = self._indexes[lost[0]]
            self._cause = f"worker {index} of {len(self._indexes)} was lost"
        if len(self._runner.clients) > len(self._indexes) and not self._cause:
            count = self._payload.workers
            self._cause = f"more than the {count} workers of load.expect_workers connected"

    def _report(self) -> None:
        at_s = time.monotonic() - self._start.at_s
        expected = self._payload.expected
        ended = dict(self._statuses)
        say({"progress": {"at_s": at_s, "ended": ended, "expected": expected}})

    def _on_prepared(self, environment: Environment, msg: Message) -> None:
        self._prepared.add(msg.node_id)

    def _on_refused(self, environment: Environment, msg: Message) -> None:
        self._cause = msg.data

    def _on_rows(self, environment: Environment, msg: Message) -> None:
        for row in msg.data:
            self._statuses[row["status"]] += 1
            self._writer.add(row)

    def _on_done(self, environment: Environment, msg: Message) -> None:
        self._done[msg.node_id] = msg.data
        error = msg.data["error"]
        if error != messages.CUT_SHORT or not self._halted.is_set():
            self._cause = self._cause or error

    def _on_sample(self, sample: Sample) -> None:
        self._scraped.add(sample._asdict())

    def _flush(self) -> None:
        self._writer.flush()
        self._scraped.flush()

    def _write_facts(self) -> None:
        workers = [
            {"worker": index} | self._done.get(worker, {"cpu": None})
            for worker, index in self._indexes.items()
        ]
        content = {
            "status": "incomplete" if self._halted.is_set() or self._cause else "completed",
            "cause": self._cause or (STOPPED if self._halted.is_set() else None),
            "start_monotonic_s": self._start.at_s,
            "workers": workers,
            "master": {"cpu": self._cpu.stop()},
        }
        write_json(self._folder / "load.json", content)


def main(stdin: Any = sys.stdin) -> None:
    """Runs the master that one JSON line asks for."""
    asked = json.loads(stdin.readline())
    run_master(Payload.read(asked["payload"]), Path(asked["out"]))
