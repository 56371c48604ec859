"""The fork server: imports what runs need once, then forks a fresh process for each.

`Launcher` starts it as `python -m bench.device.fork_server FD SETTINGS` and talks with it in lines
of JSON over the socket FD. It never uses CUDA, whose state does not survive a fork, and imports
nothing that starts a thread, because a fork takes only the calling thread along.

    to the server     {"start": id, "target", "payload", "environment", "log", "threads"}
                      {"stop": id, "signal", "grace_s"}
    from the server   {"ready": {"pid", "threads"}} | {"broken": why}
                      {"started": id, "pid"} | {"progress": data, "id"}
                      {"finished": outcome, "id"}
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from bench.device.job import run_job
from bench.device.processes import (
    die_with,
    has_ended,
    kill_group,
    outcome_of,
    own_group,
    redirect_output,
)

_ASKING_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(slots=True)
class _Child:
    """A forked process: its pipe, what it said so far and when it must be dead."""

    job: int
    pid: int
    pidfd: int
    pipe: int
    unread: bytearray = field(default_factory=bytearray)
    outcome: dict[str, Any] | None = None
    stopping: bool = False
    kill_at: float | None = None


class ForkServer:
    """Forks jobs on request and passes on what they say. One thread, one selector."""

    def __init__(self, connection: socket.socket, user_errors: Sequence[str]) -> None:
        self._connection = connection
        self._user_errors = user_errors
        self._children: dict[int, _Child] = {}
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._selector = selectors.DefaultSelector()
        self._connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ)
        self._connected = True

    def run(self) -> None:
        """Serves until the other side closes the socket; then kills what is left."""
        while self._connected:
            for key, events in self._selector.select(self._patience_s()):
                if key.fileobj is self._connection:
                    self._talk(events)
                else:
                    self._hear(key.data)
            self._kill_overdue()
        for child in list(self._children.values()):
            kill_group(child.pid)

    def send(self, message: dict[str, Any]) -> None:
        """Queues a line for the other side, which may be slow to read."""
        self._outgoing += json.dumps(message).encode() + b"\n"
        self._flush()

    # --- the other side ------------------------------------------------------------------------

    def _talk(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush()
        if events & selectors.EVENT_READ:
            try:
                data = self._connection.recv(1 << 16)
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            self._connected = self._connected and bool(data)
            self._incoming += data
            for line in _take_lines(self._incoming):
                self._obey(json.loads(line))

    def _flush(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: self._connection.send(self._outgoing)]
        except BlockingIOError:
            pass
        except OSError:
            self._connected = False
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outgoing else 0)
        self._selector.modify(self._connection, wanted)

    def _obey(self, request: dict[str, Any]) -> None:
        if "start" in request:
            self._start(request)
        elif request["stop"] in self._children:
            child = self._children[request["stop"]]
            child.stopping = True
            child.kill_at = time.monotonic() + request["grace_s"]
            os.kill(child.pid, request["signal"])

    # --- children ------------------------------------------------------------------------------

    def _start(self, request: dict[str, Any]) -> None:
        reader, writer = os.pipe()
        try:
            pid = self._fork(request, writer)
        except OSError as error:
            os.close(reader)
            outcome = {"status": "crashed", "cause": f"cannot start a process: {error}"}
            self.send({"finished": outcome, "id": request["start"]})
            return
        finally:
            os.close(writer)
        own_group(pid)
        os.set_blocking(reader, False)
        child = _Child(request["start"], pid, os.pidfd_open(pid), reader)
        self._children[child.job] = child
        self._selector.register(child.pipe, selectors.EVENT_READ, child)
        self._selector.register(child.pidfd, selectors.EVENT_READ, child)
        self.send({"started": child.job, "pid": pid})

    def _fork(self, request: dict[str, Any], writer: int) -> int:
        """The process id of a new process that runs a job."""
        sys.stdout.flush()
        sys.stderr.flush()
        server = os.getpid()
        # A signal sent to the child before it is ready for one must wait, not be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ASKING_SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                self._become_job(request, writer, server)
            return pid
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKING_SIGNALS)

    def _become_job(self, request: dict[str, Any], writer: int, server: int) -> NoReturn:
        """In the forked process: lets go of what is the server's, runs the job, never returns."""
        status = 1
        try:
            own_group(0)
            die_with(server)
            self._let_go()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            redirect_output(request["log"])
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKING_SIGNALS)
            os.environ.update(request["environment"])
            _set_threads(request["threads"])
            run_job(request["target"], request["payload"], self._user_errors, writer)
            status = 0
        finally:
            with suppress(Exception):  # the job may have closed them
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)  # the server's clean-up is not the job's

    def _let_go(self) -> None:
        """Closes what only the server may hold: else its end would go unnoticed."""
        self._selector.close()
        self._connection.close()
        for child in self._children.values():
            os.close(child.pipe)
            os.close(child.pidfd)

    def _hear(self, child: _Child) -> None:
        if child.job not in self._children:  # its pipe and its end may come at once
            return
        if has_ended(child.pidfd):
            while self._read(child):
                pass
            self._finish(child)
        elif self._read(child) == b"":
            self._selector.unregister(child.pipe)

    def _read(self, child: _Child) -> bytes | None:
        """Passes on some of what a job said; b"" at the pipe's end, None if nothing is there."""
        try:
            data = os.read(child.pipe, 1 << 16)
        except BlockingIOError:
            return None
        child.unread += data
        for line in _take_lines(child.unread):
            message = json.loads(line)
            if "progress" in message:
                self.send({"progress": message["progress"], "id": child.job})
            else:
                child.outcome = message["outcome"]
        return data

    def _finish(self, child: _Child) -> None:
        del self._children[child.job]
        # What the job started and left goes with it, while its process id cannot be another's.
        kill_group(child.pid)
        _, wait_status = os.waitpid(child.pid, 0)
        for descriptor in (child.pipe, child.pidfd):
            if descriptor in self._selector.get_map():
                self._selector.unregister(descriptor)
            os.close(descriptor)
        outcome = child.outcome or outcome_of(os.waitstatus_to_exitcode(wait_status))
        if child.stopping and outcome["status"] != "ok":
            outcome = {"status": "interrupted", "cause": "stopped on request"}
        self.send({"finished": outcome, "id": child.job})

    def _patience_s(self) -> float | None:
        times = [c.kill_at for c in self._children.values() if c.kill_at is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _kill_overdue(self) -> None:
        for child in self._children.values():
            if child.kill_at is not None and child.kill_at <= time.monotonic():
                child.kill_at = None
                kill_group(child.pid)


def _take_lines(buffer: bytearray) -> list[bytes]:
    """Removes the whole lines from a buffer."""
    *lines, rest = bytes(buffer).split(b"\n")
    buffer[:] = rest
    return lines


def _set_threads(threads: int) -> None:
    """For PyTorch where it was imported; without it there is nothing to compute with."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)


def _import(modules: Sequence[str]) -> str | None:
    """Imports modules; what went wrong, in a sentence, or None."""
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:
            return f"cannot import {module}: {type(error).__name__}: {error}"
    return None


def main(arguments: Sequence[str]) -> None:
    """Runs a server: `arguments` are the socket's descriptor and the settings as JSON."""
    settings = json.loads(arguments[1])
    for name, value in settings["restore"].items():
        if value is None:
            os.environ.pop(name, None)  # what jobs start is not on the virtual GPU
        else:
            os.environ[name] = value
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=int(arguments[0]))
    server = ForkServer(connection, settings["user_errors"])
    broken = _import(settings["modules"])
    if broken:
        connection.setblocking(True)
        connection.sendall(json.dumps({"broken": broken}).encode() + b"\n")
        return
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page of what was imported
    threads = len(os.listdir("/proc/self/task"))
    server.send({"ready": {"pid": os.getpid(), "threads": threads}})
    server.run()


if __name__ == "__main__":
    main(sys.argv[1:])
