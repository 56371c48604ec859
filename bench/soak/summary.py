"""summary.json of a soak: its segments as one run, what became of workers, and the trend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from bench.cells import Cell
from bench.config import from_container
from bench.labels import labels
from bench.metrics.trend import Series, Trend, trend
from bench.soak.pooled import pooled
from bench.soak.state import Segment, Soak

STATUSES = {"running": "incomplete", "stopped": "incomplete", "completed": "completed",
            "failed": "failed"}  # fmt: skip
RUNNING = "it was running when this was written"
_COLUMNS = ["time_s", "reserved_bytes", "allocated_bytes"]


def soak_summary(cell: Cell, soak: Soak) -> dict[str, Any]:
    """Of all segments so far; what is open in the one that runs is unfinished."""
    figures = pooled([cell.out / segment.folder for segment in soak.segments])
    if figures is None:
        figures = labels(cell.config, cell.device) | {"requests": None}
    else:
        lost = sum(segment.lost for segment in soak.segments)
        figures["requests"]["unfinished"] += figures["requests"]["lost"] - lost
        figures["requests"]["lost"] = lost
    found = soak_trend(cell, soak)
    return figures | {
        "name": cell.config["name"],
        "workload": labels(cell.config, cell.device)["workload"],
        "status": STATUSES[soak.status],
        "cause": RUNNING if soak.status == "running" else soak.cause,
        "duration_s": soak.duration_s,
        "segments": len(soak.segments),
        "restarts": soak.restarts,
        "resumed": soak.resumed,
        "trend": None if found is None else found.plain(),
        "wall_s": soak.wall_s,
    }


def soak_trend(cell: Cell, soak: Soak) -> Trend | None:
    """Of reserved - allocated over all segments."""
    config = from_container(cell.config)
    series = [_series(cell.out, segment) for segment in soak.segments]
    known = [each for each in series if each is not None]
    return trend(known, config.gpu.usable_bytes, config.seed) if known else None


def _series(folder: Path, segment: Segment) -> Series | None:
    parts = sorted((folder / segment.folder / "timeline").glob("*.parquet"))
    if not parts:
        return None
    columns = [_read(part) for part in parts]
    each = [np.concatenate([c[name].to_numpy(dtype=float) for c in columns]) for name in _COLUMNS]
    return Series(each[0] + segment.start_s, each[1], each[2])


def _read(part: Path) -> pd.DataFrame:
    with pq.ParquetFile(part) as file:  # opened once: its worker may replace it meanwhile
        rows: pd.DataFrame = file.read(columns=_COLUMNS).to_pandas()
        return rows


def trend_sentence(summary: dict[str, Any]) -> str:
    """What the trend says, for the terminal."""
    found = summary["trend"]
    if found is None:
        return "reserved - allocated: too few samples after warm-up to say whether it grows."
    low, slope, high = (
        round(found[f"{name}_mib_per_h"], 1) + 0.0  # no -0.0
        for name in ("low", "slope", "high")
    )
    left_h = found["exhaustion_h"]
    until = (
        "" if left_h is None else f"; as reserved memory grows, the card is full in {left_h:,.1f} h"
    )
    return (
        f"reserved - allocated: {found['verdict']} ({slope:+,.1f} MiB/h, 95 % interval "
        f"{low:+,.1f} to {high:+,.1f}, no growth within {found['tolerance_mib_per_h']:,.1f}"
        f"{until})."
    )
