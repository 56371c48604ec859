"""Do the rankings hold when a constant of the cost model is wrong by 30 %?"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.report import quantities as q
from bench.report.groups import ALIKE, comparable, labels
from bench.report.quantities import Quantity
from bench.report.repeats import identity
from bench.report.results import Run

RANKED = (q.REQUESTS_PER_S, q.OUTPUT_TOKENS_PER_S, q.TTFT["p50"], q.TTFT["p99"], q.TPOT["p50"])

Variants = Mapping[str, Mapping[str, Run]]
"""Of each base run, by its folder: its variants, by the change that each is of."""


@dataclass(frozen=True)
class Ranking:
    """One quantity's order of the runs of a comparison, the best first, as labels; `even` are those
    within 1 % of the one before. `overturned` has the pairs (better, worse) that a change reverses
    or makes even, with those changes."""

    quantity: Quantity
    order: tuple[str, ...]
    even: frozenset[str]
    changes: int
    overturned: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)

    def order_said(self) -> str:
        """`paged > bucketed = contiguous`."""
        first, *rest = self.order
        return first + "".join(f" {'=' if each in self.even else '>'} {each}" for each in rest)


def split(runs: Sequence[Run]) -> tuple[list[Run], Variants]:
    """Runs, and apart from them those that are theirs with a constant changed."""
    base = {identity(run, "cost_factors"): run for run in runs if not run.cost_factors}
    kept, variants = [], dict[str, dict[str, Run]]()
    for run in runs:
        own = base.get(identity(run, "cost_factors")) if run.cost_factors else None
        if own is None:
            kept.append(run)
        else:
            variants.setdefault(own.folder, {})[_change(run.cost_factors)] = run
    return kept, variants


def rankings(base: Sequence[Run], variants: Variants) -> dict[str, list[Ranking]]:
    """For each comparison, by its workload and setting: the ranking of each quantity."""
    found: dict[str, list[Ranking]] = {}
    for group in comparable(base):
        changes = sorted({change for run in group for change in variants.get(run.folder, {})})
        if len(group) > 1 and changes:
            place = group[0].workload if group[0].workload not in found else group[0].name
            each = [_ranking(quantity, group, changes, variants) for quantity in RANKED]
            found[place] = [ranking for ranking in each if ranking is not None]
    return found


def _change(factors: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {100 * (factor - 1):+.0f} %" for name, factor in factors.items())


def _ranking(
    quantity: Quantity, group: Sequence[Run], changes: Sequence[str], variants: Variants
) -> Ranking | None:
    """None unless all runs have the quantity."""
    named = dict(zip(labels(group), group, strict=True))
    values = {label: value for label, run in named.items()
              if (value := quantity.read(run)) is not None}  # fmt: skip
    if len(values) < len(named):
        return None
    order = sorted(values, key=values.__getitem__, reverse=quantity.better == "higher")
    overturned: dict[tuple[str, str], list[str]] = {}
    for better, worse in itertools.combinations(order, 2):
        if _alike(values[better], values[worse]):
            continue
        for change in changes:
            pair = [_changed(quantity, named[each], change, variants) for each in (better, worse)]
            if not _still(quantity, *pair):
                overturned.setdefault((better, worse), []).append(change)
    even = frozenset(b for a, b in itertools.pairwise(order) if _alike(values[a], values[b]))
    return Ranking(quantity, tuple(order), even, len(changes), overturned)


def _changed(quantity: Quantity, run: Run, change: str, variants: Variants) -> float | None:
    """The run's value under a change; its own where the constant does not matter to it."""
    return quantity.read(variants.get(run.folder, {}).get(change, run))


def _still(quantity: Quantity, better: float | None, worse: float | None) -> bool:
    if better is None or worse is None or _alike(better, worse):
        return False
    return better > worse if quantity.better == "higher" else better < worse


def _alike(one: float, other: float) -> bool:
    return abs(one - other) <= ALIKE * max(abs(one), abs(other))
