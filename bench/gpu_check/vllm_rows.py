"""Two sides of vLLM's runs, quantity by quantity, and whether they are alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bench.gpu_check.part import Verdict
from bench.gpu_check.vllm_cells import READ, Case, Cell

SAME = ("steps", "preemptions", "completed")
"""What follows from the requests and the number of blocks alone."""
NEAR = ("num_gpu_blocks", "started_reserved_bytes", "peak_reserved_bytes")
NEAR_SHARE = 0.02
"""How far these may lie apart: the virtual GPU takes kernels' code at one time, a card as it is
used."""
COLUMNS = ("case", "quantity", "card", "virtual", "difference", "calibrated",
           "calibrated_difference")  # fmt: skip

Cells = Mapping[Case, Cell]


class Row(NamedTuple):
    """One quantity of one case: on the card, on a virtual GPU as conf/gpu/ has it, and on one with
    what was found on the card (None: not run, or it did not end well)."""

    case: Case
    quantity: str
    card: int
    virtual: int
    calibrated: int | None

    @property
    def difference(self) -> int:
        return self.virtual - self.card

    @property
    def calibrated_difference(self) -> int | None:
        return None if self.calibrated is None else self.calibrated - self.card

    @property
    def share(self) -> float:
        """How far the card and the best virtual GPU that there is lie apart, of the larger one."""
        best = self.virtual if self.calibrated is None else self.calibrated
        return abs(best - self.card) / max(best, self.card, 1)

    @property
    def is_alike(self) -> bool:
        if self.quantity in SAME:
            return self.virtual == self.card
        return self.quantity not in NEAR or self.share <= NEAR_SHARE

    def __str__(self) -> str:
        line = f"{self.case}: {self.quantity}: card {self.card:,}"
        line += f", virtual {self.virtual:,} ({self.difference:+,})"
        if self.calibrated is not None:
            line += f", calibrated {self.calibrated:,} ({self.calibrated_difference:+,})"
        return line

    def cells(self) -> tuple[str | int | None, ...]:
        """Values of COLUMNS."""
        return (str(self.case), self.quantity, self.card, self.virtual, self.difference,
                self.calibrated, self.calibrated_difference)  # fmt: skip


def compare_cells(card: Cells, virtual: Cells, calibrated: Cells) -> list[Row]:
    """Of all cases that ended well on the card and on the virtual GPU."""
    return [
        Row(case, name, of_card.found[name], virtual[case].found[name],
            calibrated[case].found.get(name) if case in calibrated else None)
        for case, of_card in card.items()
        if of_card.found and case in virtual and virtual[case].found
        for name in READ
    ]  # fmt: skip


def judge(rows: Sequence[Row], sides: Mapping[str, Cells], cases: int) -> Verdict:
    """By the rows, of which all `cases` must be there; of those with few blocks one must have
    preempted, if there are any. `sides` say why there are fewer."""
    alike, other = _split(rows)
    figures = [f"{len(alike)} of {cases} cells alike", *map(str, other), *_causes(sides)]
    figures += [f"{name} within {_worst(rows, name):.2%}" for name in NEAR if rows]
    preempted = [row.card for row in rows if row.quantity == "preemptions" and row.case.kv_budget]
    if preempted:
        figures.append(f"{sum(preempted):,} preemptions with few blocks")
    passed = len(alike) == cases and (not preempted or min(preempted) > 0)
    return Verdict(passed, "; ".join(figures))


def _split(rows: Iterable[Row]) -> tuple[list[Case], list[Row]]:
    """Cases of which all rows are alike, and rows that are not."""
    rows = list(rows)
    other = [row for row in rows if not row.is_alike]
    differing = {row.case for row in other}
    return [case for case in dict.fromkeys(r.case for r in rows) if case not in differing], other


def _worst(rows: Iterable[Row], quantity: str) -> float:
    return max(row.share for row in rows if row.quantity == quantity)


def _causes(sides: Mapping[str, Cells]) -> list[str]:
    return [
        f"{side} {case}: {cell.cause}"
        for side, cells in sides.items()
        for case, cell in cells.items()
        if cell.cause
    ]
