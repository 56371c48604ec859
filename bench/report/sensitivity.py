"""Do the rankings hold when a constant of the cost model is wrong by 30 %?"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.report import quantities as q
from bench.report.differences import ahead
from bench.report.groups import comparable, labels, places
from bench.report.quantities import Quantity
from bench.report.repeats import identity
from bench.report.results import Run

RANKED = (q.REQUESTS_PER_S, q.OUTPUT_TOKENS_PER_S, q.TTFT["p50"], q.TTFT["p99"], q.TPOT["p50"])

Variants = Mapping[str, Mapping[str, Run]]
"""Of each base run, by its folder: its variants, by the change that each is of."""


@dataclass(frozen=True)
class Ranking:
    """One quantity's order of the runs of a comparison, the best first, as labels; `even` are those
    that the one before is not ahead of, `pairs` counts those of which one is ahead. `overturned`
    has the pairs (better, worse) of which a change does not show the same, with those changes."""

    workload: str
    quantity: Quantity
    order: tuple[str, ...]
    even: frozenset[str]
    changes: int
    pairs: int
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
    """For each comparison, by what sets it apart: the ranking of each quantity."""
    groups = [group for group in comparable(base) if len(group) > 1]
    found: dict[str, list[Ranking]] = {}
    for group, place in zip(groups, places(groups), strict=True):
        changes = sorted({change for run in group for change in variants.get(run.folder, {})})
        if changes:
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
    pairs = [
        (better, worse)
        for better, worse in itertools.combinations(order, 2)
        if ahead(quantity, named[better], named[worse])
    ]
    for better, worse in pairs:
        for change in changes:
            one, other = (_changed(named[each], change, variants) for each in (better, worse))
            if one is None or other is None or not ahead(quantity, one, other):
                overturned.setdefault((better, worse), []).append(change)
    even = frozenset(b for a, b in itertools.pairwise(order) if (a, b) not in pairs)
    workload = group[0].workload
    return Ranking(workload, quantity, tuple(order), even, len(changes), len(pairs), overturned)


def _changed(run: Run, change: str, variants: Variants) -> Run | None:
    """The run under a change, itself where the constant does not matter to it; None where that run
    did not complete, or not with the same seeds."""
    changed = variants.get(run.folder, {}).get(change, run)
    return changed if changed.completed and changed.seeds == run.seeds else None
