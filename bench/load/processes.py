"""Starts Locust's master and workers, follows them, and ends them with the run."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import IO, Any

from bench.errors import SettingError
from bench.load.payload import STOPPED, Payload
from bench.load.process import PARENT

TICK_S = 0.25
GRACE_S = 20.0
"""For the master to write what it has and for workers to quit."""
LOCALHOST = "127.0.0.1"
FACTS = "load.json"
LOG = "run.log"

OnProgress = Callable[[dict[str, Any]], None]
Ailing = Callable[[], str | None]
"""Why there is no use in going on; None while there is."""


def send_traffic(
    payload: Payload, folder: Path, on_progress: OnProgress, ailing: Ailing = lambda: None
) -> dict[str, Any]:
    """Runs the traffic with `load.processes` workers on this machine, and those that connect from
    others. Leaves `client/`, `scraped/`, load.json and run.log in `folder`, which is there.

    Returns load.json: "status", "cause", "start_monotonic_s", and each process's "cpu". Ctrl-C and
    SIGTERM end the run early, with status "incomplete"; the second time at once. So does what
    `ailing` says, which is the cause then. Raises SettingError for what only a worker can find, a
    trace's line for example.
    """
    with (folder / LOG).open("ab") as log, _Processes(log) as processes, _stops() as stops:
        run = _Run(payload, folder, processes, on_progress, ailing)
        return run.follow(stops)


def send_for_master(payload: Payload) -> int:
    """Runs `load.processes` workers for a master on another machine until it lets them go; its
    settings hold. Returns 0 if all ended well, else 1."""
    load = payload.load
    assert load.master_host is not None
    with tempfile.TemporaryFile() as log, _Processes(log) as processes:
        started = [
            processes.start("worker", load.master_host, str(load.master_port))
            for _ in range(load.processes)
        ]
        codes = [process.wait() for process in started]
        if any(codes):
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace"))
    return 1 if any(codes) else 0


class _Processes:
    """Python processes that end with this one."""

    def __init__(self, log: IO[bytes]) -> None:
        self._log = log
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._started:
            process.kill()
        for process in self._started:
            process.wait()
            for pipe in filter(None, (process.stdin, process.stdout)):
                pipe.close()

    def start(self, *arguments: str, talks: bool = False) -> subprocess.Popen[bytes]:
        """Starts one; with `talks`, its input and output are pipes."""
        pipe = subprocess.PIPE if talks else None
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.load.process", *arguments],
            stdin=pipe or subprocess.DEVNULL,
            stdout=pipe or self._log,
            stderr=self._log,
            env=os.environ | {PARENT: str(os.getpid())},
            start_new_session=True,  # Ctrl-C is for this process to pass on
        )
        self._started.append(process)
        return process


class _Run:
    """The master and its workers on this machine."""

    def __init__(
        self,
        payload: Payload,
        folder: Path,
        processes: _Processes,
        on_progress: OnProgress,
        ailing: Ailing,
    ) -> None:
        self._payload = payload
        self._folder = folder
        self._processes = processes
        self._on_progress = on_progress
        self._ailing = ailing
        self._refused: str | None = None
        self._died: str | None = None
        self._workers: list[subprocess.Popen[bytes]] = []
        self._master = processes.start("master", talks=True)
        assert self._master.stdin is not None
        asked = {"payload": payload.plain(), "out": str(folder.absolute())}
        with contextlib.suppress(BrokenPipeError):  # it died at once; its exit is seen below
            self._master.stdin.write(json.dumps(asked).encode() + b"\n")
            self._master.stdin.flush()

    def follow(self, stops: list[int]) -> dict[str, Any]:
        """Until the master ends."""
        halted = False
        for lines in self._lines():
            for line in lines:
                self._hear(json.loads(line))
            self._look_for_dead()
            if (stops or self._died) and not halted:
                halted = True
                self._master.terminate()
        self._wait_for_workers()
        return self._facts(stops)

    def _lines(self) -> Iterator[list[bytes]]:
        """What the master said, a few times a second, until it closes its output."""
        assert self._master.stdout is not None
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._master.stdout, selectors.EVENT_READ)
            while True:
                piece = None
                if selector.select(TICK_S):
                    piece = os.read(self._master.stdout.fileno(), 1 << 16)
                    *lines, rest = (rest + piece).split(b"\n")
                    yield lines
                else:
                    yield []
                if piece == b"":
                    self._master.wait()
                    return

    def _hear(self, said: dict[str, Any]) -> None:
        if "port" in said:
            self._workers = [
                self._processes.start("worker", LOCALHOST, str(said["port"]))
                for _ in range(self._payload.load.processes)
            ]
        elif "refused" in said:
            self._refused = said["refused"]
        else:
            self._on_progress(said["progress"])

    def _look_for_dead(self) -> None:
        self._died = self._died or self._ailing()
        for index, worker in enumerate(self._workers):
            if worker.poll() not in (None, 0) and not self._died:
                self._died = f"a worker ended with exit code {worker.returncode} (process {index})"

    def _wait_for_workers(self) -> None:
        end_s = time.monotonic() + GRACE_S
        for worker in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(max(end_s - time.monotonic(), 0))

    def _facts(self, stops: list[int]) -> dict[str, Any]:
        if self._refused is not None:
            raise SettingError(self._refused)
        path = self._folder / FACTS
        if path.exists():
            facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return facts | ({"cause": self._died} if self._died else {})
        if stops:
            return {"status": "incomplete", "cause": STOPPED}
        code = self._master.returncode
        cause = self._died or f"Locust's master ended with exit code {code}"
        return {"status": "failed", "cause": f"{cause}: {LOG} may say why"}


@contextlib.contextmanager
def _stops() -> Iterator[list[int]]:
    """Signals to stop, as they come. The second raises KeyboardInterrupt."""
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        if len(seen) > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
