"""How many sequences the traffic wants at once, and the layout that is enough for them.

Buckets are no candidate: they pad every step to their shapes, so that sequences stay longer and
more are wanted at once. A run of the default workload had 150 in flight with them, where 64 were in
flight with blocks (docs/plan.md).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from bench.plan.case import Case
from bench.plan.layouts import BLOCKS, RESERVED, Held

CANDIDATES = (RESERVED, BLOCKS)
"""The simplest first."""
DEVIATIONS = 3
BURST = 2
"""Times the mean in flight that there may be at once: what comes together slows itself down."""
ALIKE = 0.95
"""A reservation that holds this share of what blocks do is taken for as good."""


class Needed(NamedTuple):
    """Sequences at once, None where not known, and how that is known or why not."""

    sequences: int | None
    how: str


class Choice(NamedTuple):
    """A layout, and why it."""

    layout: str
    because: str


def needed(case: Case) -> Needed:
    """Of a closed loop its users; else twice the modelled mean in flight, at least the mean and
    three standard deviations of a Poisson number."""
    users = case.traffic["users"]
    if users is not None:
        return Needed(min(users, case.lengths.requests), "users of the closed loop")
    estimate = case.traffic["live"]["no_prefix_cache"]
    mean = estimate["requests"]
    if mean is None:
        return Needed(None, estimate["why_null"])
    most = math.ceil(max(BURST * mean, mean + DEVIATIONS * math.sqrt(mean)))
    return Needed(most, f"modelled: {mean:.1f} in flight on average, and more in bursts")


def recommend(held: Held, live_tokens: int, need: int | None) -> Choice:
    """The reservation where it holds what is needed, or nearly what blocks do; else blocks."""
    reserved, blocks = (held.at_once(layout, live_tokens) for layout in CANDIDATES)
    if need is not None and reserved >= need:
        return Choice(RESERVED, f"it holds the {need:,} that are wanted at once")
    if reserved >= ALIKE * blocks:
        return Choice(RESERVED, f"blocks would hold {blocks:,} at once, it holds {reserved:,}")
    wanted = "" if need is None else f"; {need:,} are wanted"
    return Choice(BLOCKS, f"{blocks:,} at once against {reserved:,}{wanted}")
