"""A segment of a soak: its configuration, and what its worker left."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.cells import Cell
from bench.labels import labels
from bench.load.joined import SERVER_REQUESTS
from bench.metrics.records import write_json
from bench.setting_files import write_config
from bench.soak.pooled import pooled, read_checkpoint
from bench.soak.state import Began, Segment, Soak
from workloads.trace_file import trace_name

LATER = "workloads.later.Later"


def next_segment(soak: Soak, began: Began) -> Segment:
    """The segment that goes on where the last one ended."""
    return Segment(f"segment-{len(soak.segments):03d}", soak.reached_s, began)


def segment_cell(cell: Cell, soak: Soak, segment: Segment) -> Cell:
    """The run of a segment: the soak's, from there on."""
    left_s = soak.duration_s - segment.start_s
    config = cell.config | {"stop_after_s": left_s}
    before = soak.last_that_sent
    if before is not None:
        config["workload"] = _rest(cell, soak, before, segment.start_s)
    return replace(cell, config=config, out=cell.out / segment.folder)


def _rest(cell: Cell, soak: Soak, before: Segment, start_s: float) -> dict[str, Any]:
    workload = cell.config["workload"]
    path = workload.get("path")
    return {
        "_target_": LATER,
        "name": trace_name(path) if path else workload.get("name"),
        "workload": workload,
        "since_s": before.start_s,
        "after_s": before.sent_until_s,
        "start_s": start_s,
        "after_id": max(_last_id(cell.out / segment.folder) for segment in soak.segments),
    }


def _last_id(folder: Path) -> int:
    """The largest id of a request that has a row, -1 without any."""
    found = [
        pc.max(pq.read_table(part, columns=["request_id"])["request_id"]).as_py()
        for part in folder.glob("requests/*.parquet")
    ]
    return max((each for each in found if each is not None), default=-1)


def close_segment(cell: Cell, segment: Segment, status: str, cause: str | None) -> None:
    """Books the end of a segment whose worker wrote its summary, or makes the summary of one that
    could not: from its last checkpoint and the requests that it recorded."""
    folder = cell.out / segment.folder
    if not (folder / "summary.json").exists():
        _write_summary(cell, folder, {"status": status, "cause": cause})
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    segment.status, segment.cause = summary["status"], summary["cause"]
    segment.end_s = segment.start_s + (summary.get("simulated_s") or 0.0)
    segment.lost = (summary.get("requests") or {}).get("lost", 0)
    checkpoint = read_checkpoint(folder)
    if checkpoint is not None:
        segment.sent_until_s = checkpoint["sent_until_s"]


def _write_summary(cell: Cell, folder: Path, ended: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _take_back(folder)
    if not (folder / "config.yaml").exists():
        write_config(folder, cell.config)
    figures = pooled([folder]) or labels(cell.config, cell.device) | {"requests": None}
    write_json(folder / "summary.json", figures | ended)


def _take_back(folder: Path) -> None:
    """Clients' rows are joined with a server's when a segment ends: if that was cut short, the
    server's stand."""
    served = folder / SERVER_REQUESTS
    if served.exists():
        shutil.rmtree(folder / "requests", ignore_errors=True)
        served.rename(folder / "requests")
