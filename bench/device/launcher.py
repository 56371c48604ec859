"""Runs jobs in processes of their own, each forked from a server that imported PyTorch once."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from bench.device.build import build_virtual_gpu
from bench.device.interpreter import Interpreter
from bench.device.virtual import preloaded

DeviceKind = Literal["virtual", "cuda", "cpu"]
Status = Literal["ok", "user_error", "crashed", "killed", "interrupted"]

USER_ERRORS = (
    "bench.errors:SettingError",
    "workloads.base:WorkloadError",
    "backends.base:BackendError",
)
CLOSE_GRACE_S = 5.0

# A server and its jobs share few cores with other jobs, and a fork must find a single thread. Where
# a job has several, none spins while it waits for another that has lost its core.
_THREADS = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
}


@dataclass(frozen=True, slots=True)
class Job:
    """What to run: `target` is "module:function", called with the payload (JSON) as a dict.

    `environment` is set before the function runs, `log` (a file, appended to) gets what it prints;
    without one that is dropped. PyTorch computes with `threads` threads.
    """

    target: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Progress:
    """Something that a running job reported with `report_progress`."""

    job: int
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Finished:
    """How a job ended.

    ok: `result` is what its function returned. user_error: `cause` is the error's sentence.
    crashed: an exception of another kind (`error_type`, `traceback`), or an exit (`exit_code`).
    killed: death by `signal`, or with the server. interrupted: it ended because of `terminate`.
    """

    job: int
    status: Status
    result: Any = None
    cause: str | None = None
    error_type: str | None = None
    traceback: str | None = None
    exit_code: int | None = None
    signal: str | None = None


Event = Progress | Finished


class Launcher:
    """Starts jobs on one kind of device. A context manager, to be used from one thread.

    It never imports PyTorch. Its server is started with the first job and again if it died; server
    and jobs are in sessions of their own, so a terminal's Ctrl-C reaches only the caller, who
    decides. Nothing that was started is left when it is closed or its process ends.
    """

    def __init__(
        self,
        device: DeviceKind,
        *,
        modules: Sequence[str] = ("torch",),
        user_errors: Sequence[str] = USER_ERRORS,
        interpreter: Interpreter | None = None,
    ) -> None:
        """`modules` are imported once, before any fork; they must not start threads. Jobs run in
        another Python's environment where an `interpreter` is given.

        Raises SettingError if the virtual GPU cannot be built.
        """
        self.device = device
        self._executable = interpreter.executable if interpreter else sys.executable
        self._environment = dict(os.environ)
        if device == "virtual":
            libraries = interpreter.libraries if interpreter else None
            self._environment = preloaded(os.environ, libraries or build_virtual_gpu())
        self._environment |= _THREADS
        if interpreter is None:
            path = (folder or os.getcwd() for folder in sys.path)
            self._environment["PYTHONPATH"] = os.pathsep.join(path)
        self._settings = {
            "modules": list(modules),
            "user_errors": list(user_errors),
            "restore": {name: os.environ.get(name) for name in ("LD_PRELOAD", "PYTHONPATH")},
        }
        self._server: _Server | None = None
        self._pids: dict[int, int | None] = {}
        self._next_job = 1

    def __enter__(self) -> Launcher:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def running(self) -> int:
        """How many jobs were submitted and have not finished."""
        return len(self._pids)

    @property
    def server_pid(self) -> int | None:
        """The process id of the fork server, None while there is none."""
        return None if self._server is None else self._server.process.pid

    def submit(self, job: Job) -> int:
        """Starts a job at once, beside those that run, and returns its number.

        Raises OSError if its log cannot be written.
        """
        if job.log is not None:
            job.log.touch()  # what is wrong with it is the caller's to know
        number = self._next_job
        self._next_job += 1
        if self._server is not None and not self._pids and not self._server.is_alive():
            self.close()
        if self._server is None:
            self._server = _Server(self._executable, self._environment, self._settings)
        self._pids[number] = None
        request = {
            "start": number,
            "target": job.target,
            "payload": dict(job.payload),
            "environment": dict(job.environment),
            "log": None if job.log is None else str(job.log.absolute()),
            "threads": job.threads,
        }
        self._server.send(request)
        return number

    def wait(self, timeout: float | None = None) -> list[Event]:
        """What happened, in order: at least one event, unless `timeout` seconds pass first (None:
        no limit) or no job runs."""
        deadline = None if timeout is None else time.monotonic() + timeout
        events: list[Event] = []
        while self._pids and self._server is not None and not events:
            patience = None if deadline is None else max(0.0, deadline - time.monotonic())
            messages = self._server.receive(patience)
            if messages is None:
                events += self._server_died()
                break
            for message in messages:
                events += self._understand(message)
            if not messages and patience is not None:
                break
        return events

    def run(self, job: Job) -> Finished:
        """Submits a job and waits for its end, with no other running; progress is dropped."""
        assert not self._pids, "run() is for one job at a time; use submit() and wait()"
        self.submit(job)
        while True:
            for event in self.wait():
                if isinstance(event, Finished):
                    return event

    def terminate(
        self, job: int, *, signal_number: int = signal.SIGINT, grace_s: float = 5.0
    ) -> None:
        """Asks a job to end, by a signal, and kills it and what it started after `grace_s` seconds.

        Its Finished comes from wait() as ever. A job that has finished is left alone.
        """
        if job in self._pids and self._server is not None:
            self._server.send({"stop": job, "signal": int(signal_number), "grace_s": grace_s})

    def close(self) -> None:
        """Kills the jobs that still run and ends the server."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._pids.clear()

    def _understand(self, message: dict[str, Any]) -> Iterator[Event]:
        if "started" in message:
            self._pids[message["started"]] = message["pid"]
        elif "progress" in message:
            yield Progress(message["id"], message["progress"])
        elif "finished" in message:
            self._pids.pop(message["id"], None)
            yield Finished(message["id"], **message["finished"])

    def _server_died(self) -> Iterator[Event]:
        """Ends every job in flight, and what those jobs may have started."""
        assert self._server is not None
        cause = self._server.close()
        self._server = None
        for job, pid in list(self._pids.items()):
            if pid is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            del self._pids[job]
            yield Finished(job, "killed", cause=cause)


class _Server:
    """The parent's side of one fork server process."""

    def __init__(
        self, executable: str, environment: Mapping[str, str], settings: Mapping[str, Any]
    ) -> None:
        self._socket, theirs = socket.socketpair()
        descriptor = theirs.fileno()
        self.process = subprocess.Popen(
            [
                executable,
                "-m",
                "bench.device.fork_server",
                str(descriptor),
                json.dumps(settings),
            ],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[descriptor],
            start_new_session=True,
        )
        theirs.close()
        self._unread = b""
        self._broken: str | None = None

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends a line; that the server is gone is seen by receive()."""
        with suppress(ConnectionError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, timeout: float | None) -> list[dict[str, Any]] | None:
        """The messages that have come, none after `timeout` seconds; None if the server is gone."""
        if not select.select([self._socket], [], [], timeout)[0]:
            return []
        try:
            data = self._socket.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            return None
        *lines, self._unread = (self._unread + data).split(b"\n")
        messages = [json.loads(line) for line in lines]
        for message in messages:
            self._broken = message.get("broken", self._broken)
        return messages

    def close(self) -> str:
        """Ends the server, which kills its jobs, and says how it ended."""
        self._socket.close()
        try:
            code = self.process.wait(CLOSE_GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        if self._broken:
            return self._broken
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"the process that starts runs died ({how})"
