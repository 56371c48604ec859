"""How far the memory of two decoders of the same batches is apart, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.paper.figure import Row

Numbers = NDArray[np.float64]
ALLOCATED, RESERVED, PEAK = "allocated", "reserved", "allocated, highest within the step"
QUANTITIES = (ALLOCATED, RESERVED, PEAK)
"""Columns of StepMemory's steps, after the batch."""


class Steps(NamedTuple):
    """What a job returned: bytes by step and quantity, and what of them are weights."""

    system: str
    batches: Numbers
    memory: Numbers
    weights_bytes: int

    def of(self, quantity: str) -> Numbers:
        """One quantity in bytes, by step."""
        return self.memory[:, QUANTITIES.index(quantity)]


def read_steps(system: str, result: Mapping[str, Any]) -> Steps:
    """A job's result under the name of its system."""
    table = np.array(result["steps"], dtype=np.float64)
    return Steps(system, table[:, 0], table[:, 1:], result["weights_bytes"])


def difference_rows(ours: Steps, theirs: Steps, panel: str) -> list[Row]:
    """Median and worst of how far ours is from theirs, in percent of theirs: in total, and of what
    is left without the weights. For reserved memory also of the steps before either allocator gave
    segments back: from there on the two are at different places of the same cycle."""
    rows = []
    cycled = _first_fall(ours, theirs)
    for quantity in QUANTITIES:
        spans = {"": slice(None)}
        if quantity == RESERVED and cycled:
            spans[f", before step {cycled}"] = slice(0, cycled)
        for part in ("", ", KV alone"):
            percent = _percent(ours, theirs, quantity, bool(part))
            for where, span in spans.items():
                rows += _two(percent[span], f"{quantity}{part}{where}", ours.system, panel)
    return rows


def _percent(ours: Steps, theirs: Steps, quantity: str, without_weights: bool) -> Numbers:
    mine, other = ours.of(quantity), theirs.of(quantity)
    if without_weights:
        mine, other = mine - ours.weights_bytes, other - theirs.weights_bytes
    return 100 * (mine - other) / other


def _first_fall(*sides: Steps) -> int | None:
    """The first step at which a side has less memory reserved than one before, None if none."""
    falls = np.logical_or.reduce([np.diff(side.of(RESERVED)) < 0 for side in sides])
    return int(np.argmax(falls)) + 1 if falls.any() else None


def _two(percent: Numbers, what: str, system: str, panel: str) -> list[Row]:
    worst = int(np.argmax(np.abs(percent)))
    return [
        Row(panel=panel, system=system, quantity=f"{what}: median difference", unit="%",
            ours=float(np.median(np.abs(percent))), note="from Hugging Face, of either sign"),
        Row(panel=panel, system=system, quantity=f"{what}: worst difference", unit="%",
            ours=float(percent[worst]), x=worst, x_is="step", note="from Hugging Face"),
    ]  # fmt: skip


def same_steps(sides: Sequence[Steps]) -> bool:
    """Whether all took as many steps for each batch."""
    return all(np.array_equal(side.batches, sides[0].batches) for side in sides)
