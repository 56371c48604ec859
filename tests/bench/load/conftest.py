"""A scripted server in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("scripted_server.py")


class Scripted:
    """A running server: its address and what it noted."""

    def __init__(self, url: str, log: Path) -> None:
        self.url = url
        self._log = log

    def notes(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text(encoding="utf-8").splitlines()]

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [note["body"] for note in self.notes() if "path" in note]

    def wait_for(self, key: str, count: int) -> list[dict[str, Any]]:
        """The notes that have a key, once there are so many, or after 30 s."""
        end_s = time.monotonic() + 30
        while True:
            found = [note for note in self.notes() if key in note]
            if len(found) >= count or time.monotonic() > end_s:
                return found
            time.sleep(0.02)

    @property
    def connected(self) -> int:
        return sum("connected" in note for note in self.notes())


Serve = Callable[..., Scripted]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts a server by a script's settings."""
    started: list[subprocess.Popen[str]] = []

    def start(**script: Any) -> Scripted:
        log = tmp_path / f"server{len(started)}.jsonl"
        command = [sys.executable, str(PROGRAM), json.dumps({"log": str(log)} | script)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return Scripted(f"http://127.0.0.1:{int(process.stdout.readline())}", log)

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
