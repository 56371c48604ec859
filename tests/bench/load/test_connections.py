"""Connections that idled, large requests, and when bytes came; against bare sockets."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable

import pytest

import bench.load.exchange
from bench.load.connections import Connection, Connections, Server
from bench.load.exchange import Exchange
from bench.load.habits import Habits, Leave
from bench.metrics.status import Status
from tests.bench.load.clients import play, request

REQUEST = b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
Handle = Callable[[socket.socket], None]


def listen(handle: Handle, receive_buffer_bytes: int | None = None) -> Connections:
    """Connections to a server that handles each in a thread of its own."""
    listening = socket.socket()
    if receive_buffer_bytes:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    listening.bind(("127.0.0.1", 0))
    listening.listen(100)

    def accept() -> None:
        while True:
            wire, _ = listening.accept()
            threading.Thread(target=serve, args=(wire,), daemon=True).start()

    def serve(wire: socket.socket) -> None:
        with wire, contextlib.suppress(ConnectionError):
            handle(wire)

    threading.Thread(target=accept, daemon=True).start()
    return Connections(Server("127.0.0.1", listening.getsockname()[1], tls=False, base=""))


def ask(connections: Connections, content: bytes = REQUEST, **habits: Leave) -> Exchange:
    exchange = Exchange(connections, content, 1, Habits(habits.get("leave"), None, ()), 30)
    exchange.run()
    connections.close()
    return exchange


def idle(connections: Connections, count: int) -> None:
    for connection in [connections.open() for _ in range(count)]:
        connections.give_back(connection)


def answer(wire: socket.socket, *tokens: int) -> None:
    """All events in one piece."""
    events = [{"choices": [{"text": "a", "token_ids": [token]}]} for token in tokens]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
    wire.sendall((head + body).encode())


def read_slowly(wire: socket.socket, expected: int) -> None:
    left = expected
    while left > 0:
        piece = wire.recv(1 << 16)
        if not piece:
            return
        left -= len(piece)
        time.sleep(0.001)
    answer(wire, 1)


def test_a_large_request_goes_over_a_connection_that_idled() -> None:
    content = b"x" * 4_000_000
    connections = listen(lambda wire: read_slowly(wire, len(content)), 65_536)
    idle(connections, 1)
    exchange = ask(connections, content)
    assert (exchange.status, exchange.cause) == (Status.COMPLETED, None)
    assert not exchange.new_connection


def test_a_client_may_leave_while_it_sends() -> None:
    connections = listen(lambda wire: time.sleep(5), 65_536)
    idle(connections, 1)
    exchange = ask(connections, b"x" * 8_000_000, leave=Leave("after_s", after_s=0.1))
    assert (exchange.status, exchange.left) == (Status.CANCELLED, "after_s")


def closing(after_s: float, requests: list[bytes]) -> Handle:
    """Reads a request and closes, without a word."""

    def handle(wire: socket.socket) -> None:
        if content := wire.recv(1 << 16):
            requests.append(content)
            time.sleep(after_s)

    return handle


def test_a_request_is_sent_anew_once_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each copy may have been worked on; its time counts from the first."""
    monkeypatch.setattr(bench.load.exchange, "RESEND_WITHIN_S", 30)
    requests: list[bytes] = []
    connections = listen(closing(0.0, requests))
    idle(connections, 5)
    before_s = time.monotonic()
    exchange = ask(connections)
    assert (exchange.status, exchange.resent, exchange.new_connection) == ("failed", True, True)
    assert len(requests) == 2
    assert exchange.sent_s is not None
    assert before_s <= exchange.sent_s < exchange.end_s


def test_a_request_that_the_server_gave_up_later_is_not_sent_anew() -> None:
    requests: list[bytes] = []
    connections = listen(closing(1.0, requests))
    idle(connections, 5)
    exchange = ask(connections)
    assert (exchange.status, exchange.resent) == (Status.FAILED, False)
    assert len(requests) == 1
    assert exchange.sent_s is not None
    assert exchange.end_s - exchange.sent_s >= 1


def echo(wire: socket.socket) -> None:
    while content := wire.recv(100):
        wire.sendall(content)


@pytest.mark.parametrize("step_s", [-3600, 3600])
def test_a_clock_that_is_set_moves_no_time(step_s: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes came after they were asked for and before they were read, whatever the clock says."""
    connection = listen(echo).open()
    assert receive(connection) >= 0
    now_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + step_s * 10**9)
    assert receive(connection) >= 0
    connection.close()


def receive(connection: Connection) -> float:
    """When an echo came, after it was asked for."""
    asked_s = time.monotonic()
    connection.send(b"one", 1)
    content, at_s = connection.receive(100, 1)
    assert content == b"one"
    assert at_s <= time.monotonic()
    return at_s - asked_s


def test_reads_that_several_chunks_share_are_counted() -> None:
    """Their tokens all have the time of the last, which is told."""

    def handle(wire: socket.socket) -> None:
        wire.recv(1 << 16)
        answer(wire, 1, 2, 3)

    server = listen(handle).server
    (row,) = play(f"http://{server.name}", request(output_tokens=3))
    assert (row["status"], row["generated_tokens"], row["shared_reads"]) == ("completed", 3, 1)
    assert len(set(row["token_times_s"])) == 1


def test_chunks_that_come_apart_share_no_read() -> None:
    def handle(wire: socket.socket) -> None:
        wire.recv(1 << 16)
        wire.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        for _ in range(3):
            time.sleep(0.1)
            wire.sendall(b'data: {"choices": [{"text": "a", "token_ids": [1]}]}\n\n')
        wire.sendall(b"data: [DONE]\n\n")

    server = listen(handle).server
    (row,) = play(f"http://{server.name}", request(output_tokens=3))
    assert (row["status"], row["shared_reads"]) == ("completed", 0)
