"""Where a command's time goes: seconds from its start to the end of each of its phases."""

from __future__ import annotations

import time

_BEGAN_S = time.monotonic()  # bench/cli.py imports this before anything that takes time


class Phases:
    """Phases of this command, which follow each other without a gap."""

    def __init__(self) -> None:
        self._ended_s = _BEGAN_S
        self._seconds: dict[str, float] = {}

    def ended(self, name: str) -> None:
        """The phase that began when the last one ended, or with the command, is over."""
        now_s = time.monotonic()
        self._seconds[name] = now_s - self._ended_s
        self._ended_s = now_s

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self._seconds.items())
        return f"Time: {parts}; {sum(self._seconds.values()):.1f} s in all."
