"""One run's results from what clients saw and what the engine did."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bench.load.settings import LoadSettings
from bench.load.summary import figures, last_attempts, read_attempts, warnings
from bench.metrics.latency import LATENCIES, distribution
from bench.metrics.records import REQUESTS, write_json
from bench.metrics.status import Status

SERVER_REQUESTS = "server_requests"
CLIENTS = ("requests", "throughput", "window", "clients", "lateness_s", "itl_s", *LATENCIES)
"""What of the summary is the clients'."""

TIMES = ("scheduled_s", "sent_s", "first_token_s", "last_token_s", "end_s", "left_s")
ENGINES = ("admitted_s", "preemptions", "cached_tokens")
"""Columns of `requests/` that only the engine knows."""


def join(folder: Path, load: LoadSettings, facts: dict[str, Any], started: float) -> None:
    """Makes `requests/` and summary.json of a run from the engine's, which become
    `server_requests/` and the summary's "server", and the clients' attempts."""
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    (folder / "requests").rename(folder / SERVER_REQUESTS)
    served = _read_served(folder / SERVER_REQUESTS)
    attempts = _moved(read_attempts(folder), summary["time_scale"])
    start_s = facts.get("start_monotonic_s", summary["clock_start_s"]) - summary["clock_start_s"]
    requests = _moved(last_attempts(attempts), 1.0, start_s * summary["time_scale"])
    _write_requests(folder / "requests", requests, served)
    found = figures(attempts, load.warm_up_s, load.cool_down_s)
    whole_s = found["simulated_s"]
    summary["server"] = {name: summary[name] for name in ("requests", "itl_s", *LATENCIES)}
    summary |= {name: found[name] for name in CLIENTS}
    summary |= {
        "workload": facts["workload"],
        "loop": "open" if load.users is None else "closed",
        "memory_bound": _of_time(summary["memory_bound"], summary["simulated_s"], whole_s),
        "simulated_s": whole_s,
        "disconnect_to_freed_s": disconnect_to_freed_s(requests, served),
        "processes": {"workers": facts.get("workers", []), "master": facts.get("master")},
        "warnings": warnings(found, facts),
        "wall_s": time.monotonic() - started,
    }
    if summary["status"] == "completed":
        summary |= {"status": facts["status"], "cause": facts["cause"]}
    write_json(folder / "summary.json", summary)


def disconnect_to_freed_s(requests: pd.DataFrame, served: pd.DataFrame) -> dict[str, Any]:
    """From a client's closing its connection to its memory's being free, of cancelled requests."""
    left = requests[(requests["status"] == Status.CANCELLED) & requests["left_s"].notna()]
    both = left.merge(served, on="request_id", suffixes=("", "_served"))
    freed = both[both["status_served"] == Status.CANCELLED]
    return distribution((freed["end_s_served"] - freed["left_s"]).to_numpy(dtype=float))


def _read_served(folder: Path) -> pd.DataFrame:
    parts = sorted(folder.glob("*.parquet"))
    tables = [pq.read_table(part) for part in parts] or [REQUESTS.empty_table()]
    rows: pd.DataFrame = pa.concat_tables(tables).to_pandas()
    return rows


def _moved(attempts: pd.DataFrame, scale: float, start_s: float = 0.0) -> pd.DataFrame:
    """With clients' times in seconds of the engine, `scale` of which pass in one of theirs, on a
    clock that says `start_s` when theirs says 0."""
    moved = attempts.copy()
    for name in TIMES:
        moved[name] = moved[name] * scale + start_s
    moved["token_times_s"] = attempts["token_times_s"].map(
        lambda times: times * scale + start_s, na_action="ignore"
    )
    return moved


def _write_requests(folder: Path, requests: pd.DataFrame, served: pd.DataFrame) -> None:
    folder.mkdir()
    known = served[["request_id", *ENGINES]].drop_duplicates("request_id", keep="last")
    own = requests.drop(columns=[name for name in ENGINES if name in requests])
    rows = own.merge(known, on="request_id", how="left").reindex(columns=REQUESTS.names)
    rows = rows.astype({"preemptions": "Int64", "cached_tokens": "Int64"})
    table = pa.Table.from_pandas(rows, schema=REQUESTS, preserve_index=False)
    pq.write_table(table, folder / "part-00000.parquet")


def _of_time(
    bound: dict[str, Any] | None, served_s: float, whole_s: float
) -> dict[str, Any] | None:
    """Shares of time are of the traffic's, not of the server's life around it."""
    if bound is None or not whole_s:
        return bound
    return bound | {"share_of_time": min(1.0, bound["share_of_time"] * served_s / whole_s)}
