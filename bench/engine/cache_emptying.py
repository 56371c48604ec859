"""When the allocator gives its unused segments back to the driver: torch.cuda.empty_cache()."""

from __future__ import annotations

import time

import torch

from bench.engine.executor import Executor


class CacheEmptying:
    """`when`: never; between, whenever nothing runs and nothing waits any more; or step, after
    every step, which the requests of the next one wait for."""

    def __init__(self, when: str, executor: Executor) -> None:
        self._when = when
        self._executor = executor
        self.count = 0

    def after_step(self, idle: bool) -> float:
        """Seconds that it took: measured where steps are, else those of the driver's calls. 0 where
        it was not called."""
        if self._when == "never" or (self._when == "between" and not idle):
            return 0.0
        self.count += 1
        began_s = time.perf_counter()
        torch.cuda.empty_cache()
        modelled_s = self._executor.charge()
        return time.perf_counter() - began_s if self._executor.measures else modelled_s
