"""How busy a process that measures is: a saturated client measures itself."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

import gevent

WINDOW_S = 1.0
SATURATED = 0.9
"""Share of one core. Python runs on one at a time."""


@dataclass
class CpuShare:
    """Of one process: the share of a core it took, on average and in its busiest second, and the
    seconds in which it took more than SATURATED."""

    mean: float | None = None
    busiest: float | None = None
    saturated_s: int = 0


class CpuMonitor:
    """Looks once a second, from its start on."""

    def __init__(self) -> None:
        self._shares: list[float] = []
        self._started = (time.process_time(), time.monotonic())
        self._greenlet = gevent.spawn(self._look)

    def stop(self) -> dict[str, float | int | None]:
        """What it saw, as a CpuShare's fields."""
        self._greenlet.kill()
        mean = self._since(self._started)
        found = CpuShare(mean, max(self._shares, default=mean))
        found.saturated_s = sum(share > SATURATED for share in self._shares)
        return asdict(found)

    def _look(self) -> None:
        while True:
            before = (time.process_time(), time.monotonic())
            gevent.sleep(WINDOW_S)
            self._shares.append(self._since(before))

    @staticmethod
    def _since(before: tuple[float, float]) -> float:
        used_s, at_s = before
        return (time.process_time() - used_s) / max(time.monotonic() - at_s, 1e-9)
