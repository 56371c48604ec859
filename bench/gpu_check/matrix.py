"""Part 5: a short real matrix, with measured times, and its report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.gpu_check.card import Card
from bench.gpu_check.part import Task, Verdict
from bench.gpu_check.processes import PartError, run_fragbench

BACKENDS = ("contiguous", "vmm", "paged", "paged_prefix", "paged_radix")
TRAFFIC = (
    "model=llama3_8b",
    "model.layers=8",  # a quarter of its layers: 5.6 GB of weights
    "workload=mixed",
    "workload.rate_rps=20",  # more than is served, so that memory runs out
    "kv_budget=1GiB",
    "stop_after_s=8",
    "sample_interval_s=0.5",
)
REPORT_S = 30.0


def check(task: Task, limit_s: float) -> Verdict:
    """Every backend served requests, with measured times."""
    folder = task.folder / "matrix"
    arguments = ["matrix", *overrides(task.card), "device=cuda", f"out={folder}"]
    log = task.folder / "matrix.log"
    code = run_fragbench(arguments, log, limit_s - REPORT_S, task.say)
    summaries = {path.parent.name: _read(path) for path in sorted(folder.glob("*/summary.json"))}
    if not summaries:
        raise PartError(f"the matrix ended with exit code {code} and no results, see {log}")
    verdict = judge(summaries)
    report = run_fragbench(["report", str(folder)], task.folder / "report.log", REPORT_S, task.say)
    return Verdict(verdict.passed and code == 0 and report == 0, verdict.figures)


def overrides(card: Card) -> list[str]:
    """Hydra's, but for the device and the folder."""
    return [f"backend={','.join(BACKENDS)}", *TRAFFIC, *card.overrides()]


def judge(summaries: dict[str, dict[str, Any]]) -> Verdict:
    """By what each cell's summary.json says."""
    figures = [_figures(name, summary) for name, summary in summaries.items()]
    return Verdict(
        len(summaries) == len(BACKENDS) and all(map(_worked, summaries.values())),
        "; ".join(figures),
    )


def _worked(summary: dict[str, Any]) -> bool:
    facts = summary["status"], summary["device"], summary["time"]
    served: int = (summary["requests"] or {}).get("completed", 0)
    return facts == ("completed", "cuda", "measured") and served > 0


def _figures(name: str, summary: dict[str, Any]) -> str:
    if summary["status"] != "completed":
        return f"{name} {summary['status']}: {summary['cause']}"
    served, speed = summary["requests"]["completed"], summary["throughput"]
    return (
        f"{name}: {served} served, {speed['output_tokens_per_s']:,.0f} tokens/s "
        f"({summary['time']}), batch {summary['batch']['mean']:.1f}"
    )


def _read(path: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return summary
