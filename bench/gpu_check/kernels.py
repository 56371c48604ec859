"""Part 1: the Triton kernels, compiled for this card, against attention in float64."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from bench.gpu_check.part import Task, Verdict, write_rows
from bench.gpu_check.processes import Jobs, cause

COLUMNS = ("kernel", "case", "error", "tolerance", "passed", "note")
MOST_WORKERS = 8
"""Most of the time goes into compiling, which is the CPU's; each takes 0.5 GiB of the card."""


def check(task: Task, limit_s: float) -> Verdict:
    """Every kernel within the tolerance of the tests, K and V stored bit by bit."""
    of = max(1, min(MOST_WORKERS, (os.cpu_count() or 1) // 2))
    asked = [({"worker": worker, "of": of, "device": "cuda"}, "") for worker in range(of)]
    with Jobs(task.real, limit_s, task.say, task.folder / "kernels.log") as jobs:
        ended = jobs.run_all("bench.gpu_check.kernel_job:check_kernels", asked)
    rows = [row for finished in ended if finished.status == "ok" for row in finished.result]
    lost = [cause(finished) for finished in ended if finished.status != "ok"]
    write_rows(task.folder / "kernels.csv", COLUMNS, [[row[c] for c in COLUMNS] for row in rows])
    return judge(rows, lost)


def judge(rows: Sequence[dict[str, Any]], lost: Sequence[str]) -> Verdict:
    """`lost` says why processes gave no rows."""
    wrong = [row for row in rows if not row["passed"]]
    figures = [f"{len(rows) - len(wrong)} of {len(rows)} checks passed"]
    measured = [row for row in rows if row["error"] is not None]
    if measured:
        worst = max(measured, key=lambda row: float(row["error"] / row["tolerance"]))
        figures.append(
            f"worst error {worst['error']:.2g} of {worst['tolerance']:g} allowed "
            f"({worst['kernel']}, {worst['case']})"
        )
    if wrong:
        first = wrong[0]
        figures.append(f"first that failed: {first['kernel']}, {first['case']}: {_why(first)}")
    figures += [f"a process gave no result: {why}" for why in dict.fromkeys(lost)]
    return Verdict(bool(rows) and not wrong and not lost, "; ".join(figures))


def _why(row: dict[str, Any]) -> str:
    return row["note"] or f"error {row['error']:.2g} of {row['tolerance']:g} allowed"
