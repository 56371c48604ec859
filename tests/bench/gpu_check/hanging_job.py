"""A job that never ends."""

from __future__ import annotations

import signal
from typing import Any


def hang(payload: dict[str, Any]) -> None:
    while True:
        signal.pause()
