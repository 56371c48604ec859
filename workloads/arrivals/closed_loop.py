"""A closed loop: a fixed number of users, each of whom waits for an answer before asking again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals.base import CHUNK, NS_PER_S
from workloads.settings import count, number

MAX_USERS = 100_000


class ClosedLoopArrivals:
    """`users` that each send a session when their last one has ended, however it did, and a pause
    has passed: gamma, of mean `pause_s` and coefficient of variation `pause_cv` (1: exponential; 0:
    always the mean). Users start one after the other, `stagger_s` apart.

    There are never more sessions open than users, so that load follows the server: a slow one is
    asked less. `workload.rate_rps` is not used.
    """

    def __init__(
        self,
        *,
        users: int,
        pause_s: float = 0.0,
        pause_cv: float = 1.0,
        stagger_s: float = 0.01,
    ) -> None:
        name = "workload.arrivals.users"
        self.users = count(name, users, 1, MAX_USERS, "users", "give a number such as 16")
        fix = "0 asks again at once"
        self._pause_s = number("workload.arrivals.pause_s", pause_s, 0, 1e6, "seconds", fix)
        fix = "cv is standard deviation / mean"
        self._pause_cv = number("workload.arrivals.pause_cv", pause_cv, 0, 10, "(a ratio)", fix)
        fix = "0 starts all at once"
        self.stagger_s = number("workload.arrivals.stagger_s", stagger_s, 0, 1e4, "seconds", fix)

    def pauses_ns(self, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        """The pause before each session, in ns, in chunks without end."""
        pause_ns = self._pause_s * NS_PER_S
        while True:
            pauses = np.ones(CHUNK)
            if self._pause_cv:
                shape = self._pause_cv**-2
                pauses = rng.standard_gamma(shape, CHUNK) / shape
            yield np.rint(pauses * pause_ns).astype(np.int64)
