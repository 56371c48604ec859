"""The event loop of a server's HTTP process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


def run(serving: Coroutine[Any, Any, int]) -> int:
    """Runs a server to its end, on uvloop where it is installed."""
    try:
        import uvloop  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        factory = None
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(serving)
