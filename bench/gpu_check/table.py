"""Part 4: the kernel table, short."""

from __future__ import annotations

import csv
from collections import Counter

from bench.gpu_check.part import Task, Verdict
from bench.gpu_check.processes import PartError, run_fragbench

SHORT = ("batches=1,64", "contexts=512,8192", "block_sizes=8,16,256", "repeats=30")


def check(task: Task, limit_s: float) -> Verdict:
    """`fragbench kernels` with a few cases; all that can run agreed and was timed."""
    folder = task.folder / "kernel_table"
    log = task.folder / "kernel_table.log"
    code = run_fragbench(["kernels", *SHORT, f"out={folder}"], log, limit_s, task.say)
    table = folder / "kernels.csv"
    if not table.is_file():
        raise PartError(f"fragbench kernels ended with exit code {code} and no table, see {log}")
    with table.open(encoding="utf-8", newline="") as file:
        statuses = Counter(row["status"] for row in csv.DictReader(file))
    counts = ", ".join(f"{number} {status}" for status, number in statuses.items())
    return Verdict(code == 0 and statuses["timed"] > 0, f"{counts}: {table}")
