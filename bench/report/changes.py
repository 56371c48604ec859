"""Two sets of results side by side: what moved from one to the other, and was it noise?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import copysign, inf
from typing import Any, Literal

import pandas as pd

from bench.report import quantities as q
from bench.report.differences import LEAST, shown
from bench.report.quantities import Quantity
from bench.report.repeats import VERSIONS, gathered, name_without
from bench.report.results import Run, flat
from bench.report.sensitivity import split
from bench.report.statistics import Estimate, paired_change, unpaired_change

COMPARED = {
    each.column: each
    for each in (
        q.REQUESTS_PER_S, q.OUTPUT_TOKENS_PER_S, *q.TTFT.values(), *q.TPOT.values(),
        *q.E2E.values(), q.SHARES["token_states"], q.HELD_WASTE, q.PEAK_RESERVED,
    )
}  # fmt: skip
"""Quantities by their column: those of which more is better or worse, and the peak of memory."""

KINDS = ("workload", "model", "gpu", "device", "time")
"""What a run is of: said first where it differs."""

Verdict = Literal["same", "better", "worse", "no difference shown", "not known"]


@dataclass(frozen=True)
class Change:
    """One quantity of one run in both sets. `share` is the change as a share of what it was before,
    None where one of the two is undefined or the first is 0."""

    name: str
    workload: str
    quantity: Quantity
    before: float | None
    after: float | None
    share: Estimate | None

    @property
    def worsening(self) -> float | None:
        """By what share it is worse, negative where it is better; without end from 0 on."""
        if self.share is not None:
            grown = self.share.value
        elif self.before == 0 and self.after is not None:
            grown = copysign(inf, self.after)
        else:
            return None
        return -grown if self.quantity.better == "higher" else grown

    @property
    def verdict(self) -> Verdict:
        """`same` below 0.05 %, `not known` where one is undefined. Without repeats a change is
        taken as it is."""
        if self.before == self.after:  # both undefined, also
            return "same"
        if self.worsening is None:
            return "not known"
        if abs(self.worsening) < LEAST:
            return "same"
        if not shown(self.share):
            return "no difference shown"
        return "worse" if self.worsening > 0 else "better"

    @property
    def repeated(self) -> bool:
        """Whether an interval says that it is not noise."""
        return self.share is not None and self.share.low is not None


@dataclass(frozen=True)
class Comparison:
    """Runs of two sets, matched by name. `unlike` says which settings and versions differ in any
    pair, and how; `only_before` and `only_after` have no partner. `lost` completed before and not
    after, `not_compared` did not complete before: both by name, with the causes."""

    changes: tuple[Change, ...]
    lost: Mapping[str, str]
    not_compared: Mapping[str, str]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    unlike: Mapping[str, tuple[Any, Any]]

    def regressions(self, over: float) -> list[Change]:
        """What is worse by more than a share, beyond noise as far as that is known."""
        return [
            change
            for change in self.changes
            if change.verdict == "worse" and (change.worsening or 0) > over
        ]

    def table(self) -> pd.DataFrame:
        """One row a quantity of a run."""
        rows = [
            {
                "name": change.name, "workload": change.workload,
                "quantity": change.quantity.column, "before": change.before,
                "after": change.after, "change": change.share and change.share.value,
                "low": change.share and change.share.low,
                "high": change.share and change.share.high,
                "repeats": change.share and change.share.repeats, "verdict": change.verdict,
            }
            for change in self.changes
        ]  # fmt: skip
        return pd.DataFrame(rows)


def compare(
    before: Sequence[Run], after: Sequence[Run], quantities: Sequence[Quantity]
) -> Comparison:
    """What moved between completed runs of the same name; where there is one in each set, of these
    two, whatever they are called."""
    old, new = _by_name(before), _by_name(after)
    if len(old) == len(new) == 1:
        new = dict(zip(old, new.values(), strict=True))
    both = [name for name in old if name in new]
    shared = [name for name in both if old[name].completed and new[name].completed]
    unlike: dict[str, tuple[Any, Any]] = {}
    for name in shared:
        unlike |= _unlike(old[name], new[name])
    return Comparison(
        tuple(_change(name, old[name], new[name], each) for name in shared for each in quantities),
        {name: f"{new[name].cause}" for name in both
         if old[name].completed and not new[name].completed},
        {name: f"{old[name].cause}" for name in both if not old[name].completed},
        tuple(name for name in old if name not in new),
        tuple(name for name in new if name not in old),
        unlike,
    )  # fmt: skip


def _by_name(runs: Sequence[Run]) -> dict[str, Run]:
    """Rows of a set by name; where several have the same, by folder."""
    rows = split(gathered(runs))[0]
    names = [name_without(run.name, "seed") for run in rows]
    return {
        name if names.count(name) == 1 else run.folder: run
        for name, run in zip(names, rows, strict=True)
    }


def _change(name: str, before: Run, after: Run, quantity: Quantity) -> Change:
    old = [value for run in before.each if (value := quantity.of_one(run)) is not None]
    new = [value for run in after.each if (value := quantity.of_one(run)) is not None]
    share = None
    if len(old) == len(before.each) and len(new) == len(after.each):
        same = before.seeds == after.seeds
        share = paired_change(old, new) if same else unpaired_change(old, new)
    values = quantity.read(before), quantity.read(after)
    return Change(name, before.workload, quantity, *values, share)


def _unlike(before: Run, after: Run) -> dict[str, tuple[Any, Any]]:
    pairs: dict[str, tuple[Any, Any]] = {
        key: (getattr(before, key), getattr(after, key)) for key in KINDS
    }
    pairs |= {key: (before.environment.get(key), after.environment.get(key)) for key in VERSIONS}
    pairs["seeds"] = before.seeds, after.seeds
    old, new = flat(before.settings), flat(after.settings)
    pairs |= {key: (old.get(key), new.get(key)) for key in old | new if key != "seed"}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
