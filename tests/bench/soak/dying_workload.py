"""Traffic whose second request nobody survives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workloads.base import ClosedLoop, Request


class Dying:
    """A request at 1 s; drawing the next one raises, as a fault of the harness would."""

    name = "dying"
    closed_loop: ClosedLoop | None = None

    def requests(self, seed: int) -> Iterator[Request]:
        yield Request(0, 1.0, 8, 2)
        raise RuntimeError("nobody survives this")

    def trace_facts(self) -> dict[str, dict[str, Any]]:
        return {}
