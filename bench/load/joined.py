"""One run's results from what clients saw and what the engine did."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bench.load.settings import LoadSettings
from bench.load.summary import (
    figures,
    last_attempts,
    lateness_s,
    outcome,
    read_attempts,
    warnings,
    write_client_gaps,
)
from bench.metrics.latency import LATENCIES, distribution
from bench.metrics.records import REQUESTS, write_json
from bench.metrics.status import Status

SERVER_REQUESTS = "server_requests"
CLIENTS = ("requests", "throughput", "window", "clients", "lateness_s", "itl_s", *LATENCIES)
"""What of the summary is the clients'."""

TIMES = ("scheduled_s", "sent_s", "first_token_s", "last_token_s", "end_s", "left_s")
ENGINES = ("admitted_s", "preemptions", "cached_tokens")
"""Columns of `requests/` that only the engine knows."""


class Served(NamedTuple):
    """The server of a driven run: what the run is called, how many of the engine's seconds passed
    in one of the clients', and why it has no results or none that are whole, if so."""

    labels: dict[str, Any]
    time_scale: float
    failed: str | None


def join(
    folder: Path, load: LoadSettings, facts: dict[str, Any], server: Served, started: float
) -> None:
    """Makes `requests/` and summary.json of a run from the engine's, which become
    `server_requests/` and the summary's "server", and the clients' attempts.

    Of an engine that wrote no summary there is what it had recorded when it died, and the run has
    the clients' figures.
    """
    summary = _of_engine(folder, server)
    if (folder / "requests").exists():
        (folder / "requests").rename(folder / SERVER_REQUESTS)
    served = _read_served(folder / SERVER_REQUESTS)
    measured = read_attempts(folder)
    attempts = _moved(measured, server.time_scale)
    start_s = _between(summary.get("clock_start_s"), facts.get("start_monotonic_s"))
    requests = _moved(last_attempts(attempts), 1.0, start_s * server.time_scale)
    _write_requests(folder / "requests", requests, served)
    write_client_gaps(folder, attempts, load.warm_up_s, load.cool_down_s)
    found = figures(attempts, load.warm_up_s, load.cool_down_s)
    found["lateness_s"] = lateness_s(measured)
    whole_s = found["simulated_s"]
    if "simulated_s" in summary:
        summary["server"] = {name: summary[name] for name in ("requests", "itl_s", *LATENCIES)}
        bound = _of_time(summary["memory_bound"], summary["simulated_s"], whole_s)
        summary["memory_bound"] = bound
    summary |= {name: found[name] for name in CLIENTS}
    summary |= {
        "workload": server.labels["workload"],
        "loop": server.labels["loop"],
        "simulated_s": whole_s,
        "disconnect_to_freed_s": disconnect_to_freed_s(requests, served),
        "processes": {"workers": facts.get("workers", []), "master": facts.get("master")},
        "warnings": [*summary.get("warnings", []), *warnings(found, facts)],
        "wall_s": time.monotonic() - started,
    }
    if summary["status"] == "completed":
        summary |= outcome(found, facts)
    write_json(folder / "summary.json", summary)


def _of_engine(folder: Path, server: Served) -> dict[str, Any]:
    """The engine's summary, or what stands for one that it could not write."""
    summary: dict[str, Any] = server.labels | {
        "status": "completed",
        "cause": None,
        "time_scale": server.time_scale,
    }
    if (folder / "summary.json").exists():
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    if server.failed and summary["status"] == "completed":
        summary |= {"status": "failed", "cause": server.failed}
    return summary


def _between(engine_start_s: float | None, clients_start_s: float | None) -> float:
    """From the engine's start to the clients'; 0 where one of them told none."""
    if engine_start_s is None or clients_start_s is None:
        return 0.0
    return clients_start_s - engine_start_s


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
