"""The server of a driven run, in a process of its own, as seen by who started it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import Any

from bench.errors import SettingError

SERVER = "bench.load.server_process"
STOP_S = 60.0
"""That the server gets to end what runs and write its files, beyond its serve.drain_s."""
CAUSE = "fragbench: "
"""What a line starts with that says why a command failed."""


class OwnServer:
    """Serves while it is entered; `url` is where."""

    url: str

    def __init__(self, payload: dict[str, Any]) -> None:
        self._payload = payload
        self._wait_s = STOP_S + payload["config"]["serve"]["drain_s"]
        self._cause: str | None = None

    def __enter__(self) -> OwnServer:
        """Raises SettingError."""
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # who stops it is this process
            text=True,
        )
        try:
            self.url = self._ask()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _ask(self) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(self._payload | {"parent": os.getpid()}))
        self._process.stdin.close()
        said = json.loads(self._process.stdout.readline() or "{}")
        if "url" not in said:
            raise SettingError(said.get("cause") or "the server ended before it listened.")
        return str(said["url"])

    def ended(self) -> str | None:
        """Why it ended by itself; None while it serves, and once it was told to stop."""
        if self._cause is None and self._process.poll() is not None:
            self._cause = f"the server ended: {self._why()}"
        return self._cause

    def stop(self) -> str | None:
        """Has it write its results. Returns why it has none or they are not whole, if so."""
        if self.ended() is not None:
            return self._cause
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(self._wait_s)
        except subprocess.TimeoutExpired:
            self._cause = f"the server did not end within {self._wait_s:g} s of being told to"
        else:
            if code:
                self._cause = f"the server ended: {self._why()}"
        return self._cause

    def _why(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().splitlines()
        told = [line.removeprefix(CAUSE) for line in lines if line.startswith(CAUSE)]
        code = self._process.returncode
        return told[-1] if told else f"exit code {code}"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.seek(0)
        sys.stderr.write(self._errors.read())  # to the run's log
        self._errors.close()
