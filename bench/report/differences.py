"""What sets a run apart from the simplest backend that had the same requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.report.groups import comparable
from bench.report.quantities import Quantity
from bench.report.results import Run
from bench.report.statistics import Estimate, paired_change

NO_DIFFERENCE = "\N{ALMOST EQUAL TO}"
"""Stands for an interval that has 0 in it: no difference shown."""
MANY_TIMES = 2.0
"""From this ratio on a change is said as one; downwards from ten times less."""
LEAST = 0.0005
"""Below this share there is no change."""
ALIKE = 0.01
"""Values closer than this share are alike: a model's noise, not a ranking."""


def baselines(runs: Sequence[Run]) -> dict[str, Run]:
    """For each run, by its folder, the one that it is compared with: the first of its group."""
    return {
        run.folder: group[0] for group in comparable(runs) for run in group if run is not group[0]
    }


def difference(quantity: Quantity, base: Run, run: Run) -> Estimate | None:
    """How much larger the run's number is, as a share of the baseline's; pairs of the same seed.
    None where a number is undefined or the baseline's is 0."""
    pairs = [(quantity.of_one(a), quantity.of_one(b))
             for a, b in zip(base.each, run.each, strict=True)]  # fmt: skip
    before = [a for a, b in pairs if a is not None and b is not None]
    after = [b for a, b in pairs if a is not None and b is not None]
    return paired_change(before, after) if len(before) == len(pairs) else None


def ahead(quantity: Quantity, one: Run, other: Run) -> bool:
    """Whether `one` is better: by more than `ALIKE`, and beyond noise as far as that is known."""
    first, second = quantity.read(one), quantity.read(other)
    if first is None or second is None or alike(first, second):
        return False
    if first < second if quantity.better == "higher" else first > second:
        return False
    return shown(difference(quantity, other, one))


def alike(one: float, other: float) -> bool:
    """Whether two values are within `ALIKE` of the larger."""
    return abs(one - other) <= ALIKE * max(abs(one), abs(other))


def shown(change: Estimate | None) -> bool:
    """False for a change that is no more than noise; where no interval says so, it is taken as it
    is."""
    return change is None or change.excludes_zero is not False


def best(quantity: Quantity, group: Sequence[Run]) -> set[str]:
    """Folders of the run with the best value and of those that it is not `ahead` of; none where
    these are all."""
    values = {run.folder: value for run in group if (value := quantity.read(run)) is not None}
    known = [run for run in group if run.folder in values]
    if quantity.better is None or not known:
        return set()
    pick = max if quantity.better == "higher" else min
    top = pick(known, key=lambda run: values[run.folder])
    found = {run.folder for run in known if not ahead(quantity, top, run)}
    return found if len(found) < len(known) else set()


def difference_said(change: Estimate) -> str:
    """Such as `+12 % (+9 to +15)`, `x3.1 (2.9 to 3.3)`, or that no difference is shown; without an
    interval where there is none.

    >>> difference_said(Estimate(2.1, 5, 1.9, 2.3))
    '\N{MULTIPLICATION SIGN}3.1 (2.9 to 3.3)'
    """
    low, high, value = change.low, change.high, change.value
    if low is not None and high is not None and not shown(change) and (low or high):
        return f"{NO_DIFFERENCE} ({100 * low:+.1f} to {100 * high:+.1f} %)"
    if abs(value) < LEAST:
        return "="
    said, between = _forms(change)
    if low is None or high is None:
        return said(value)
    return f"{said(value)} ({between(low)} to {between(high)})"


def _forms(change: Estimate) -> tuple[Callable[[float], str], Callable[[float], str]]:
    """How a change is said, and how the ends of its interval are."""
    value = change.value
    if value >= MANY_TIMES - 1:
        return (lambda v: f"\N{MULTIPLICATION SIGN}{1 + v:,.1f}"), (lambda v: f"{1 + v:,.1f}")
    if -1 < value <= -0.9:
        return (lambda v: f"\N{DIVISION SIGN}{_times_less(v)}"), _times_less
    ends = (change.low, change.high)
    near_zero = any(end is not None and abs(end) < 0.005 for end in ends)
    digits = 1 if abs(value) < 0.1 or near_zero else 0
    return (lambda v: f"{100 * v:+.{digits}f} %"), (lambda v: f"{100 * v:+.{digits}f}")


def _times_less(share: float) -> str:
    return f"{1 / (1 + share):,.0f}" if share > -1 else "\N{INFINITY}"
