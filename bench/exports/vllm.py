"""Runs in the JSON that `vllm bench serve --save-result --save-detailed` writes, one file each.

Keys and formulas are those of vllm/benchmarks/serve.py (vLLM 0.20): all completed requests count,
percentiles interpolate, durations in ms have `_ms` at their end and all others are in seconds. Two
things differ: what is undefined is null and never 0, and what no run records (texts, each request's
gaps between tokens) is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench.report.distributions import gaps_s
from bench.report.groups import slugs
from bench.report.page import Contents, replace_file
from bench.report.results import Run

PERCENTILES = (50, 90, 95, 99)
COLUMNS = (
    "status", "cause", "prompt_tokens", "generated_tokens", "branches", "scheduled_s", "sent_s",
    "first_token_s", "last_token_s", "end_s",
)  # fmt: skip
DETAILS = ("input_lens", "output_lens", "ttfts", "latencies", "start_times", "queue_times",
           "errors")  # fmt: skip
"""One value a request."""
SWEEP = Path(".sweep") / "summary.json"
"""All runs without their details, where `vllm bench sweep plot` looks. The folder is hidden, or a
report of a folder above would take it for a run."""

Floats = NDArray[np.float64]


def write_vllm(shown: Contents, folder: Path) -> list[Path]:
    """vllm/NAME.json of each run that has requests, and the list of all for vLLM's own plots."""
    place = folder / "vllm"
    (place / SWEEP).parent.mkdir(parents=True, exist_ok=True)
    names = slugs(run.name if run.folder == "." else run.folder for run in shown.each)
    slug_of = dict(zip((run.folder for run in shown.each), names.values(), strict=True))
    results = {run.folder: found for run in shown.each if (found := vllm_result(run))}
    for key, result in results.items():
        _write(place / f"{slug_of[key]}.json", result)
    brief = [{k: v for k, v in each.items() if k not in DETAILS} for each in results.values()]
    _write(place / SWEEP, brief)
    return [*(place / f"{slug_of[key]}.json" for key in results), place / SWEEP]


def vllm_result(run: Run) -> dict[str, Any] | None:
    """A run as vLLM's result; None where it recorded no request."""
    rows = run.requests.read(COLUMNS, run.notes)
    rows = rows[rows["sent_s"].notna()].sort_values("sent_s", kind="stable", ignore_index=True)
    if rows.empty:
        return None
    done = rows[rows["status"] == "completed"]
    tokens = rows["generated_tokens"] * rows["branches"].fillna(1)
    tokens = tokens.where(rows["status"] == "completed", 0).fillna(0)
    return {
        **_setup(run, rows),
        **_throughput(run, done, tokens),
        "failed": len(rows) - len(done),
        "request_goodput": None,
        "max_output_tokens_per_s": None,
        "max_concurrent_requests": _most_at_once(done),
        **_details(rows, tokens),
        **_latencies(run, done),
    }


def _setup(run: Run, rows: pd.DataFrame) -> dict[str, Any]:
    """What was run. `backend` is ours: the memory side that served. From `workload` on the keys are
    our own, as vLLM's --metadata adds some."""
    arrivals = _section(_section(run.config, "workload"), "arrivals")
    poisson = str(arrivals.get("_target_")).endswith(".PoissonArrivals")
    return {
        "date": _started(run),
        "endpoint_type": run.backend,
        "backend": run.backend,
        "label": run.name,
        "model_id": run.model,
        "tokenizer_id": None,
        "num_prompts": len(rows),
        "request_rate": _rate(rows),
        "burstiness": 1.0 if poisson else arrivals.get("burstiness"),
        "max_concurrency": arrivals.get("users"),
        "workload": run.workload,
        "engine": run.engine,
        "gpu_type": run.gpu,
        "device": run.device,
        "time": run.time,
        "status": run.status,
        "seed": run.seeds[0],
        "tensor_parallel_size": run.config.get("tensor_parallel"),
        "folder": run.folder,
    }


def _section(settings: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = settings.get(key)
    return found if isinstance(found, Mapping) else {}


def _started(run: Run) -> str | None:
    try:
        return datetime.fromisoformat(str(run.environment.get("started"))).strftime("%Y%m%d-%H%M%S")
    except ValueError:
        return None


def _rate(rows: pd.DataFrame) -> float | None:
    """Requests sent a second, from the first to the last."""
    span_s = rows["sent_s"].iloc[-1] - rows["sent_s"].iloc[0]
    return float((len(rows) - 1) / span_s) if span_s > 0 else None


def _throughput(run: Run, done: pd.DataFrame, tokens: pd.Series) -> dict[str, Any]:
    duration_s = run.number("simulated_s")
    totals = int(done["prompt_tokens"].sum()), int(tokens.sum())

    def rate(count: int) -> float | None:
        return count / duration_s if duration_s else None

    return {
        "duration": duration_s,
        "completed": len(done),
        "total_input_tokens": totals[0],
        "total_output_tokens": totals[1],
        "request_throughput": rate(len(done)),
        "output_throughput": rate(totals[1]),
        "total_token_throughput": rate(sum(totals)),
    }


def _most_at_once(done: pd.DataFrame) -> int | None:
    """Completed requests open at once; one that ends as another is sent is not open with it."""
    if done.empty:
        return None
    moments = np.concatenate([done["sent_s"], done["end_s"]])
    steps = np.repeat([1, -1], len(done))
    return int(np.cumsum(steps[np.lexsort((steps, moments))]).max())


def _details(rows: pd.DataFrame, tokens: pd.Series) -> dict[str, list[Any]]:
    """One value a request, in the order in which they were sent; null where there is none."""
    failed = rows["status"].str.cat(rows["cause"], sep=": ", na_rep="").str.removesuffix(": ")
    return {
        "input_lens": rows["prompt_tokens"].astype("Int64").to_list(),
        "output_lens": tokens.astype(int).to_list(),
        "ttfts": _listed(rows["first_token_s"] - rows["sent_s"]),
        "latencies": _listed(rows["end_s"] - rows["sent_s"]),
        "start_times": _listed(rows["sent_s"]),
        "queue_times": _listed(rows["sent_s"] - rows["scheduled_s"]),
        "errors": failed.where(rows["status"] != "completed", "").to_list(),
    }


def _listed(values: pd.Series) -> list[float | None]:
    return [None if np.isnan(value) else value for value in values.to_list()]


def _latencies(run: Run, done: pd.DataFrame) -> dict[str, float | None]:
    several = done[done["generated_tokens"] > 1]
    spans = several["last_token_s"] - several["first_token_s"]
    found = {
        "ttft": done["first_token_s"] - done["sent_s"],
        "tpot": spans / (several["generated_tokens"] - 1),
        "e2el": done["end_s"] - done["sent_s"],
    }
    said: dict[str, float | None] = {}
    for name, values in found.items():
        known = np.sort(values.dropna().to_numpy(dtype=float))
        said |= _statistics(name, known, np.ones(len(known)))
    return said | _statistics("itl", *gaps_s(run))


def _statistics(name: str, sizes_s: Floats, counts: Floats) -> dict[str, float | None]:
    """Mean, median, standard deviation and percentiles, in ms, of sorted values that occurred so
    often; a percentile is null below 1 / (1 - q) of them."""
    total = counts.sum()
    keys = ("mean", "median", "std", *(f"p{percent}" for percent in PERCENTILES))
    if not total:
        return {f"{key}_{name}_ms": None for key in keys}
    mean = float(np.average(sizes_s, weights=counts))
    std = float(np.sqrt(np.average((sizes_s - mean) ** 2, weights=counts)))
    values: list[float | None] = [mean, _quantile(sizes_s, counts, 50), std]
    values += [
        _quantile(sizes_s, counts, percent) if total * (100 - percent) >= 100 else None
        for percent in PERCENTILES
    ]
    in_ms = (None if value is None else 1000 * value for value in values)
    return {f"{key}_{name}_ms": value for key, value in zip(keys, in_ms, strict=True)}


def _quantile(sizes_s: Floats, counts: Floats, percent: int) -> float:
    """As numpy.percentile has it of each value repeated: interpolated between neighbours."""
    place = percent / 100 * (counts.sum() - 1)
    below = np.cumsum(counts)
    low, high = (
        sizes_s[np.searchsorted(below, position, side="right").clip(max=len(sizes_s) - 1)]
        for position in (np.floor(place), np.ceil(place))
    )
    return float(low + (high - low) * (place - np.floor(place)))


def _write(path: Path, content: Any) -> None:
    replace_file(path, (json.dumps(content, allow_nan=False) + "\n").encode())
