"""`fragbench serve` in a process of its own, and plain ways to talk to it, for tests."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

ON_CPU = ("device=cpu", "model=tiny", "max_model_len=1024", "kv_budget=256MiB")
VIRTUAL = ("device=virtual", "model=llama3_8b", "gpu=a100_80gb", "kv_budget=4GiB")
PATIENCE_S = 60.0


class Answered(NamedTuple):
    """A response that was read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The JSON of each event, which ends with [DONE]."""
        *events, done = self.body.decode().split("\n\n")[:-1]
        assert done == "data: [DONE]"
        return [json.loads(event.removeprefix("data: ")) for event in events]


class Server:
    """A server that runs."""

    def __init__(self, process: subprocess.Popen[str], url: str, out: Path) -> None:
        self.process = process
        self.url = url
        self.out = out
        self.port = int(url.rpartition(":")[2])

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answered:
        """A request on a connection of its own."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, named)
            response = connection.getresponse()
            return Answered(response.status, dict(response.headers), response.read())
        finally:
            connection.close()

    def post(self, path: str, body: Any, **headers: str) -> Answered:
        """JSON to one of the endpoints of /v1/."""
        data = json.dumps(body).encode()
        return self.request("POST", f"/v1/{path}", data, Content_Type="application/json", **headers)

    def begin(self, body: Any, *, receive_bytes: int = 0, **headers: str) -> socket.socket:
        """A completion whose response is not read; the socket is the caller's to close."""
        connection = socket.socket()
        connection.settimeout(PATIENCE_S)
        if receive_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.connect(("127.0.0.1", self.port))
        data = json.dumps(body).encode()
        fixed = {"Host": "a", "Content-Type": "application/json", "Content-Length": len(data)}
        lines = [f"{name}: {value}\r\n" for name, value in (fixed | headers).items()]
        head = f"POST /v1/completions HTTP/1.1\r\n{''.join(lines)}\r\n"
        connection.sendall(head.encode("latin-1") + data)
        return connection

    def raw(self, data: bytes) -> bytes:
        """What comes back until the server closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as connection:
            connection.sendall(data)
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        text = self.request("GET", "/metrics").body.decode()
        samples = [
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return sum(samples)

    def wait_until(self, true: Callable[[], bool]) -> None:
        """Fails after a minute."""
        until_s = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < until_s, "it never came true"
            time.sleep(0.02)

    def signal(self, number: int = signal.SIGTERM) -> None:
        os.kill(self.process.pid, number)

    def summary(self) -> Any:
        """Of a server that has ended."""
        return json.loads((self.out / "summary.json").read_text(encoding="utf-8"))


@contextmanager
def running(out: Path, *arguments: str, exit_code: int = 0) -> Iterator[Server]:
    """A server, which ends with `exit_code` unless the test fails."""
    command = [sys.executable, "-m", "bench", "serve", *arguments, "port=0", f"out={out}"]
    log = out.with_suffix(".log")
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    with process, process.stdout:
        try:
            line = process.stdout.readline()
            assert " on http://" in line, log.read_text(encoding="utf-8")
            yield Server(process, line.split()[-1], out)
            process.terminate()
            code = process.wait(PATIENCE_S)
        except BaseException:
            process.kill()
            raise
    said = log.read_text(encoding="utf-8")
    assert code == exit_code, said
    assert "Traceback" not in said, said
