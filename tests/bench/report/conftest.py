"""Run folders made by hand, with numbers that a test can derive."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bench.report.page import write_report

GIB = 1 << 30
SHARES = {
    "token_states": 0.25,
    "reservation": 0.125,
    "internal": 0.375,
    "undetermined": 0.0,
    "rounding": 0.0625,
    "cached": 0.0,
    "external": 0.1875,
}

WriteRun = Callable[..., Path]


def latency(p50: float, count: int = 100) -> dict[str, float | int | None]:
    """A latency block whose p90 is twice and p99 three times its p50; no p99 below 100 samples."""
    p99 = 3 * p50 if count >= 100 else None
    return {
        "mean": 1.25 * p50, "p50": p50, "p90": 2 * p50, "p95": 2.5 * p50, "p99": p99,
        "count": count,
    }  # fmt: skip


def summary(backend: str, workload: str, requests_per_s: float, count: int) -> dict[str, Any]:
    """The summary of a run that completed all of its `count` requests."""
    seconds = latency(1.0, count)
    return {
        "name": f"backend={backend},workload={workload}",
        "status": "completed", "cause": None, "seed": 0,
        "backend": backend, "workload": workload, "model": "llama3_8b", "gpu": "a100_80gb",
        "device": "virtual", "time": "modelled",
        "kv_budget_bytes": 8 * GIB, "kv_bytes_per_token": 131072, "weights_bytes": 15 * GIB,
        "activation_peak_bytes": GIB,
        "requests": {
            "sent": count, "completed": count, "failed": 0, "cancelled": 0, "rejected": 0,
            "unfinished": 0,
        },
        "throughput": {
            "requests_per_s": requests_per_s, "output_tokens_per_s": 100 * requests_per_s,
            "total_tokens_per_s": 500 * requests_per_s,
        },
        "ttft_s": seconds, "ttft_scheduled_s": seconds, "tpot_s": latency(0.02, count),
        "itl_s": latency(0.02, count), "e2e_s": latency(4.0, count),
        "normalized_latency_s": latency(0.04, count),
        "batch": {"mean": 12.5, "max": 20}, "preemptions": 3, "prefix_cache": None,
        "memory_bound": {"share_of_time": 0.5, **SHARES, "batch_mean": 16.0},
        "held_waste": 0.6,
        "allocator": {
            "peak_allocated_bytes": 20 * GIB, "peak_reserved_bytes": 24 * GIB,
            "num_alloc_retries": 2, "num_ooms": 1, "driver_calls": {"cudaMalloc": 40},
            "driver_s": 0.004,
        },
        "incidents": 1, "simulated_s": count / requests_per_s, "wall_s": 2.0,
    }  # fmt: skip


def timeline(samples: int = 4, start_s: float = 0.0) -> pd.DataFrame:
    """Samples a second apart; of B = 8 GiB, in GiB: 2 token states, 4 unfilled, 0.5 rounding,
    0 cached, 1.5 free. Memory-bound in every second sample."""
    rows = range(samples)
    constant = {
        "running": 12, "waiting": 3, "token_states_bytes": 2 * GIB, "unfilled_bytes": 4 * GIB,
        "rounding_bytes": GIB // 2, "cached_bytes": 0, "free_bytes": 3 * GIB // 2,
        "kv_budget_bytes": 8 * GIB, "allocated_bytes": 20 * GIB, "requested_bytes": 19 * GIB,
        "reserved_bytes": 24 * GIB, "active_bytes": 20 * GIB, "segments": 40,
        "largest_free_bytes": GIB, "external_fragmentation": 0.25, "num_ooms": 1,
    }  # fmt: skip
    return pd.DataFrame(
        {
            "time_s": [start_s + float(i) for i in rows],
            "memory_bound": [i % 2 == 1 for i in rows],
            **{name: [value] * samples for name, value in constant.items()},
        }
    )


def unfilled(samples: int = 4, start_s: float = 0.0) -> pd.DataFrame:
    """The split of those 4 GiB: 1 reserved, 3 internal."""
    times = [start_s + float(i) for i in range(samples)]
    parts = {"reservation_bytes": GIB, "internal_bytes": 3 * GIB, "undetermined_bytes": 0}
    return pd.DataFrame({"time_s": times, **{k: [v] * samples for k, v in parts.items()}})


def write_parts(folder: Path, *frames: pd.DataFrame) -> None:
    """Writes each frame as a part file, numbered from 0."""
    folder.mkdir()
    for number, frame in enumerate(frames):
        frame.to_parquet(folder / f"part-{number:05d}.parquet")


def run_writer(root: Path) -> WriteRun:
    """A function that writes one whole run below `root` and returns its folder. Keywords replace
    what is at the top of its summary; `omit_summary` leaves a run as one that was killed."""

    def write(
        folder: str,
        backend: str = "paged",
        workload: str = "mixed",
        *,
        requests_per_s: float = 2.0,
        count: int = 100,
        omit_summary: bool = False,
        **replaced: Any,
    ) -> Path:
        run = root / folder
        run.mkdir(parents=True)
        if not omit_summary:
            facts = summary(backend, workload, requests_per_s, count) | replaced
            (run / "summary.json").write_text(json.dumps(facts))
        config = f"backend:\n  name: {backend}\nworkload:\n  name: {workload}\nseed: 0\n"
        (run / "config.yaml").write_text(config)
        (run / "environment.json").write_text(json.dumps({"torch": "2.14.1", "python": "3.11"}))
        incident = {"time_s": 1.5, "kind": "refused", "count": 4}
        (run / "incidents.jsonl").write_text(json.dumps(incident) + "\n")
        (run / "run.log").write_text("started\nstopped\n")
        outcomes = ["completed"] * 3 + ["failed"]
        causes = [None] * 3 + ["out of memory"]
        write_parts(run / "requests", pd.DataFrame({"status": outcomes, "cause": causes}))
        gaps = pd.DataFrame({"gap_s": [0.01, 0.02, 0.04], "count": [5, 4, 1]})
        write_parts(run / "inter_token", gaps)
        write_parts(run / "timeline", timeline(), timeline(start_s=4.0))
        write_parts(run / "unfilled", unfilled(), unfilled(start_s=4.0))
        return run

    return write


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    """Writes runs below `tmp_path`."""
    return run_writer(tmp_path)


@pytest.fixture(scope="session")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report, made once, of two workloads: of the four runs one failed, one was killed and one
    never was memory-bound."""
    root = tmp_path_factory.mktemp("matrix")
    write = run_writer(root)
    write("1", "contiguous", "chat", requests_per_s=1.0)
    write("2", "paged", "chat", memory_bound=None)
    write("3", "contiguous", "a/b <script>alert(1)</script> $x", status="failed", cause="<b>&")
    killed = write("4", "paged", "a/b <script>alert(1)</script> $x", omit_summary=True)
    part = killed / "timeline" / "part-00001.parquet"
    part.write_bytes(part.read_bytes()[:50])
    write_report(root)
    return root
