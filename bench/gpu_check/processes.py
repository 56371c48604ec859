"""What the parts of the check start: jobs on a device, and commands of fragbench; all of them have
a limit, so that a part that hangs leaves time for the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.device.launcher import Finished, Job, Launcher
from bench.device.virtual import allocator_environment
from bench.gpu_check.card import Device

Say = Callable[[str], None]

GRACE_S = 10.0
TICK_S = 0.5


class PartError(RuntimeError):
    """Why a part of the check could not be done, in one sentence."""


class Jobs:
    """Jobs on one device, each a process of its own, until a deadline. A context manager."""

    def __init__(self, device: Device, limit_s: float, say: Say, log: Path | None = None) -> None:
        self._device = device
        self._deadline = time.monotonic() + limit_s
        self._say = say
        self._log = log
        self._launcher = Launcher(device.kind, modules=("torch",))

    def __enter__(self) -> Jobs:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._launcher.close()

    def run(self, target: str, payload: Mapping[str, Any], alloc_conf: str = "") -> Any:
        """What "module:function" returns for the payload. Raises PartError."""
        (finished,) = self.run_all(target, [(payload, alloc_conf)])
        if finished.status != "ok":
            raise PartError(cause(finished))
        return finished.result

    def run_all(
        self, target: str, asked: Iterable[tuple[Mapping[str, Any], str]]
    ) -> list[Finished]:
        """How jobs, all at once, for pairs of a payload and settings of the allocator ended; in
        that order."""
        numbers = [
            self._launcher.submit(
                Job(
                    target,
                    payload,
                    self._device.environment | allocator_environment(conf),
                    self._log,
                )
            )
            for payload, conf in asked
        ]
        done: dict[int, Finished] = {}
        while len(done) < len(numbers) and time.monotonic() < self._deadline:
            for event in self._launcher.wait(TICK_S):
                if isinstance(event, Finished):
                    done[event.job] = event
                else:
                    self._say(str(event.data["said"]))
        if len(done) < len(numbers):
            self._launcher.close()  # or the next would wait for those that hang
        late = "it was not done in the time that this part has"
        return [done.get(number) or Finished(number, "killed", cause=late) for number in numbers]


def cause(finished: Finished) -> str:
    """Why a job did not do what it should, in one line."""
    lines = (finished.cause or finished.status).strip().splitlines()
    return f"{finished.error_type}: {lines[0]}" if finished.error_type else lines[0]


def run_fragbench(arguments: Sequence[str], log: Path, limit_s: float, say: Say) -> int:
    """The exit code of a command of fragbench, whose output is passed on line by line and kept in
    `log`. Raises PartError if it takes longer than its limit."""
    say(f"fragbench {' '.join(arguments)}")
    process = subprocess.Popen(
        [sys.executable, "-m", "bench", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    overdue = threading.Event()

    def ask_to_end() -> None:
        overdue.set()
        _signal(process, signal.SIGTERM)

    timers = [
        threading.Timer(limit_s, ask_to_end),
        threading.Timer(limit_s + GRACE_S, _signal, [process, signal.SIGKILL]),
    ]
    try:
        for timer in timers:
            timer.start()
        _pass_on(process, log, say)
        code = process.wait()
    finally:
        for timer in timers:
            timer.cancel()
        if process.poll() is None:  # interrupted
            _signal(process, signal.SIGKILL)
            process.wait()
    if overdue.is_set():
        raise PartError(f"fragbench {arguments[0]} was not done in {limit_s:.0f} s, see {log}")
    return code


def _pass_on(process: subprocess.Popen[str], log: Path, say: Say) -> None:
    assert process.stdout is not None
    with process.stdout, log.open("w", encoding="utf-8") as kept:
        for line in process.stdout:
            kept.write(line)
            kept.flush()
            say(line.rstrip())


def _signal(process: subprocess.Popen[str], number: int) -> None:
    """To the command and what is still in its session."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
