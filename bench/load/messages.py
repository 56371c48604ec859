"""What the master of a load run and its workers say to each other, over Locust's own messages.

worker -> master   ready to connect (Locust's)
master -> worker   PREPARE  settings, and which worker it is
worker -> master   PREPARED, or REFUSED with a cause
master -> worker   spawn (Locust's): so many users
master -> worker   BEGIN    when, and which users these are
worker -> master   ROWS     of attempts that ended, once a second
worker -> master   DONE     its users have nothing left to do
master -> worker   HALT     end what is open
"""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import Any, NamedTuple

PREPARE, PREPARED, REFUSED, BEGIN, ROWS, DONE, HALT = (
    "fragbench_prepare", "fragbench_prepared", "fragbench_refused", "fragbench_begin",
    "fragbench_rows", "fragbench_done", "fragbench_halt",
)  # fmt: skip

CUT_SHORT = "Locust stopped a worker before it had sent its requests"
"""DONE's error where nobody told the worker to halt; nothing to report where somebody had."""

START_DELAY_S = 0.5
"""From the master's BEGIN to the first request: more than a message takes to any worker."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Start(NamedTuple):
    """When a run starts, on the monotonic clock of the machine that `boot_id` names."""

    at_s: float
    boot_id: str

    @classmethod
    def soon(cls) -> Start:
        """In START_DELAY_S from now."""
        return cls(time.monotonic() + START_DELAY_S, boot_id())

    def here(self) -> float:
        """On this machine's monotonic clock. Clocks of other machines say nothing here: these
        start as long after the message came as it was sent before, late by its way."""
        return self.at_s if self.boot_id == boot_id() else time.monotonic() + START_DELAY_S


class Begin(NamedTuple):
    """To one worker: its users are numbered from `first_user`, of `users` in all."""

    start: Start
    first_user: int
    own_users: int
    users: int

    @classmethod
    def read(cls, data: list[Any]) -> Begin:
        """What a message carries."""
        start, first_user, own_users, users = data
        return cls(Start(*start), first_user, own_users, users)


def boot_id() -> str:
    """Names this machine since it started."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return platform.node()
