"""A Locust worker that sends its share of a workload.

Open loop: its one user spawns a greenlet for each session, just before it is due: no number of
users can run out. Closed loop: each of its users sends a session after the other.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import gevent
from gevent.event import Event
from gevent.pool import Group
from locust.env import Environment
from locust.rpc import Message

from bench.errors import SettingError
from bench.load import messages
from bench.load.asking import Asker
from bench.load.client import Client, Row, sleep_until
from bench.load.connections import Connections, Server
from bench.load.cpu import CpuMonitor
from bench.load.exchange import Exchange
from bench.load.messages import Begin
from bench.load.payload import Payload
from bench.load.settings import on_clients_clock
from bench.load.users import user_class
from bench.metrics.status import Status
from bench.open_files import allow_many_connections
from bench.plugins import make
from bench.shares import Shares
from workloads.base import ClosedLoop, Request, Workload, WorkloadError

LEAD_S = 0.1
"""How long before it is due a request is made ready."""
ROWS_EVERY_S = 1.0
OPENING_GAP_S = 0.005
"""Between connections opened ahead: not all at once."""


def run_worker(master_host: str, master_port: int) -> None:
    """Does what the master at that address says, until it says quit."""
    allow_many_connections()
    worker = _Worker()
    environment = Environment(user_classes=[user_class(worker.work)])
    runner = environment.create_worker_runner(master_host, master_port)
    worker.listen(environment, runner)
    runner.greenlet.join()


class _Worker:
    def __init__(self) -> None:
        self._began = Event()
        self._numbers = count()
        self._loops = Group()  # users' work, what goes first when all is to end
        self._sessions = Group()  # those of an open loop
        self._errors: list[str] = []
        self._rows: list[Row] = []
        self._ended_users = 0

    def listen(self, environment: Environment, runner: Any) -> None:
        """Waits for the master's messages."""
        self._environment = environment
        self._runner = runner
        for name, listener in (
            (messages.PREPARE, self._on_prepare),
            (messages.BEGIN, self._on_begin),
            (messages.HALT, self._on_halt),
        ):
            runner.register_message(name, listener, concurrent=True)

    def _on_prepare(self, environment: Environment, msg: Message) -> None:
        """Makes ready all that need not be done while the run goes."""
        try:
            self._prepare(Payload.read(msg.data["payload"]), msg.data["index"])
        except (SettingError, WorkloadError) as error:
            self._runner.send_message(messages.REFUSED, str(error))
        except Exception as error:
            self._runner.send_message(messages.REFUSED, f"{type(error).__name__}: {error}")
        else:
            self._runner.send_message(messages.PREPARED)

    def _prepare(self, payload: Payload, index: int) -> None:
        self._payload = payload
        load = on_clients_clock(payload.load, payload.time_scale)
        workload: Workload = make(payload.workload, "workload")
        self._loop = workload.closed_loop
        self._requests = _drawn_ahead(workload.requests(payload.seed))
        assert load.url is not None
        server = Server.at(load.url)
        self._connections = Connections(server)
        asker = Asker(load, payload.vocab_size, server)
        self._client = Client(
            load,
            asker,
            self._connections,
            time_scale=payload.time_scale,
            seed=payload.seed,
            worker=index,
            on_row=self._rows.append,
            on_end=self._tell_locust,
        )
        self._path = asker.path
        self._open_connections(load.connections // payload.workers)
        gc.collect()
        gc.freeze()  # what lives for the whole run is not looked at again

    def _open_connections(self, wanted: int) -> None:
        """Connections for the first requests, each opened at a moment of its own."""
        opened = []
        for _ in range(wanted):
            try:
                opened.append(self._connections.open())
            except OSError:
                break  # the requests will say
            gevent.sleep(OPENING_GAP_S)
        for connection in opened:
            self._connections.give_back(connection)

    def _on_begin(self, environment: Environment, msg: Message) -> None:
        begin = Begin.read(msg.data)
        self._begin = begin
        self._client.start_s = begin.start.here()
        mine = range(begin.first_user, begin.first_user + begin.own_users)
        self._shares = Shares(self._requests, begin.users, mine)
        self._cpu = CpuMonitor()
        self._reporter = gevent.spawn(self._report)
        if self._payload.stop_after_s is not None:
            self._client.end_s = self._client.due_s(self._payload.stop_after_s)
            gevent.spawn(self._halt_at, self._client.end_s)
        self._began.set()
        if not begin.own_users:  # fewer users than workers
            self._finish()

    def work(self) -> None:
        """What a user does."""
        number = next(self._numbers)
        self._began.wait()
        user = self._begin.first_user + number
        try:
            self._spawn(self._loops, self._send, user).join()
        except gevent.GreenletExit:  # stop on Locust's page, or no word of the master for a minute
            self._errors.append(messages.CUT_SHORT)
            gevent.spawn(self._halt)
            raise
        finally:
            self._ended_users += 1
            if self._ended_users == self._begin.own_users:
                gevent.spawn(self._finish)

    def _send(self, user: int) -> None:
        if self._loop is None:
            self._send_open(user)
        else:
            self._send_closed(user, self._loop)

    def _send_open(self, user: int) -> None:
        """Each session at its time, whatever became of those before."""
        for request in self._shares.of(user):
            due_s = self._client.due_s(request.scheduled_s)
            sleep_until(due_s - LEAD_S)
            self._spawn(self._sessions, self._client.play, request, due_s)
        self._sessions.join()

    def _send_closed(self, user: int, loop: ClosedLoop) -> None:
        """Each session when the one before has ended and a pause has passed; users start one after
        the other."""
        sleep_until(self._client.due_s(user * loop.stagger_s))
        until_s = min(self._client.due_s(loop.until_s), self._client.end_s)
        for request in self._shares.of(user):
            due_s = time.monotonic() + request.scheduled_s / self._payload.time_scale
            if due_s >= until_s:
                return
            sleep_until(due_s)
            self._client.play(request, due_s)

    def _halt_at(self, at_s: float) -> None:
        sleep_until(at_s)
        self._halt()

    def _on_halt(self, environment: Environment, msg: Message) -> None:
        self._halt()

    def _halt(self) -> None:
        """Ends what is open: its rows say unfinished."""
        self._loops.kill()
        self._sessions.kill()

    def _spawn(self, group: Group, work: Callable[..., None], *arguments: Any) -> gevent.Greenlet:
        greenlet = group.spawn(work, *arguments)
        greenlet.link_exception(self._on_error)
        return greenlet

    def _on_error(self, greenlet: gevent.Greenlet) -> None:
        """What ends a session other than its server: a trace's line, or a fault of ours."""
        self._errors.append(f"{type(greenlet.exception).__name__}: {greenlet.exception}")

    def _report(self) -> None:
        while True:
            gevent.sleep(ROWS_EVERY_S)
            self._send_rows()

    def _send_rows(self) -> None:
        rows = self._rows.copy()
        self._rows.clear()
        if rows:
            self._runner.send_message(messages.ROWS, rows)

    def _finish(self) -> None:
        self._halt()  # nothing is open, unless users were stopped
        self._reporter.kill()
        self._send_rows()
        self._connections.close()
        error = self._errors[0] if self._errors else None
        self._runner.send_message(messages.DONE, {"cpu": self._cpu.stop(), "error": error})

    def _tell_locust(self, exchange: Exchange) -> None:
        """Locust's own statistics and page, with our times."""
        began_s = exchange.end_s if exchange.sent_s is None else exchange.sent_s
        good = exchange.status in (Status.COMPLETED, Status.CANCELLED)
        fire: Any = self._environment.events.request.fire
        fire(
            request_type="POST",
            name=self._path + (" (client left)" if exchange.left else ""),
            response_time=(exchange.end_s - began_s) * 1000,
            response_length=exchange.received_bytes,
            exception=None if good else RuntimeError(exchange.cause or exchange.status),
            context={},
        )


def _drawn_ahead(requests: Iterator[Request]) -> Iterator[Request]:
    """The same requests, the first of them (and what a workload sets up before it) drawn now."""
    first = next(requests, None)

    def whole() -> Iterator[Request]:
        if first is not None:
            yield first
            yield from requests

    return whole()
