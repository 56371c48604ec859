"""How many requests the traffic wants at once, and the layout that is enough for them.

Buckets are no candidate: they pad every step to their shapes, so that sequences stay longer and
more are wanted at once. A run of the default workload had 150 in flight with them, where 64 were in
flight with blocks (docs/plan.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bench.costs.configured import resolve_costs
from bench.plan.case import Case
from bench.plan.in_flight import most_in_flight, step_s
from bench.plan.layouts import BLOCKS, LAYOUTS, RESERVED, Held
from bench.traffic.limits import served
from bench.traffic.live import Live, mean_work, with_clients

EITHER = "either"


class Needed(NamedTuple):
    """Requests at once, None where not known, and how that is known or why not."""

    sequences: int | None
    how: str


class Choice(NamedTuple):
    """A layout, or EITHER, and why."""

    layout: str
    because: str

    @property
    def backend(self) -> str | None:
        """The one that has the layout."""
        return None if self.layout == EITHER else LAYOUTS[self.layout][0]


def needed(case: Case) -> Needed:
    """Of a closed loop its users, where all sessions start at one moment those, else what is in
    flight at most in 99 % of the time; of none more than there are."""
    users = case.traffic["users"]
    if users is not None:
        return Needed(min(users, case.lengths.requests), "users of the closed loop")
    if case.traffic["rates"]["requests_per_s"] is None:
        return Needed(case.sample.sessions, "sessions, which all start at one moment")
    estimate = case.traffic["live"]["no_prefix_cache"]
    if estimate["requests"] is None:
        return Needed(None, estimate["why_null"])
    most = _most_in_flight(case)
    if case.sample.whole:
        most = min(most, case.lengths.requests)
    return Needed(most, "modelled: no more are in flight in 99 % of the time")


def recommend(held: Held, live_tokens: int, need: int | None) -> Choice:
    """The reservation where it holds what is needed: nothing is left to be gained. Else blocks,
    where they hold more; where they do not, memory is short and no layout makes up for it."""
    reserved, blocks = (held.at_once(layout, live_tokens) for layout in (RESERVED, BLOCKS))
    wanted = "" if need is None else f"; {need:,} are wanted"
    if need is not None and reserved >= need:
        return Choice(RESERVED, f"it holds {reserved:,} at once{wanted}: more would stand empty")
    if blocks > reserved:
        return Choice(BLOCKS, f"{blocks:,} at once against {reserved:,} reserved{wanted}")
    return Choice(EITHER, f"{reserved:,} at once each way{wanted}")


def _most_in_flight(case: Case) -> int:
    """Of requests that are not rejected; clients that leave or read slowly change how long they
    stay."""
    config, sample = case.config, case.sample
    kept = served(sample, config)
    rate_rps = case.traffic["rates"]["requests_per_s"] * float(kept.mean())
    work = mean_work(sample, kept, np.zeros(len(kept), np.int64))
    costs = resolve_costs(config, case.container["backend"].get("block_size"))
    unread = config.serve.stream_buffer_tokens

    def load(number: int) -> float:
        seconds = step_s(work, number, costs)
        alike = Live(seconds, seconds, requests=0.0, kv_tokens=0.0)
        return with_clients(alike, sample, kept, rate_rps, unread).requests

    return most_in_flight(np.array([load(n) for n in range(1, config.engine.max_num_seqs + 1)]))
