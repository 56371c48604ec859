"""What a run measured of a deployment's questions (docs/plan.md), read from its files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bench.report.results import Run

NEAR = 0.9
"""Of max_model_len: a request at or above it is near the limit."""

_LEFT = ("status", "prompt_tokens", "generated_tokens", "sent_s", "admitted_s", "last_token_s",
         "end_s", "leave")  # fmt: skip
_STATE = ("peak_allocated_bytes", "peak_reserved_bytes", "num_alloc_retries", "num_ooms")


class Release(NamedTuple):
    """After clients left, until their memory was free: how many, the median and the longest in
    seconds (over HTTP the 99th percentile, None below 100), and the most tokens that they held
    meanwhile, averaged over the run (None where not known)."""

    clients: int
    p50_s: float | None
    longest_s: float | None
    held_tokens: float | None


def live_tokens(run: Run) -> float | None:
    """Tokens whose K and V the budget holds."""
    nbytes, token_bytes = run.number("kv_budget_bytes"), run.number("kv_bytes_per_token")
    return nbytes // token_bytes if nbytes is not None and token_bytes else None


def most_live_tokens(run: Run) -> float | None:
    """The most live tokens in a sample of the timeline."""
    token_bytes = run.number("kv_bytes_per_token")
    states = run.timeline.read(("token_states_bytes",), run.notes)["token_states_bytes"].dropna()
    return float(states.max()) / token_bytes if len(states) and token_bytes else None


def near_share(run: Run) -> float | None:
    """Share of requests whose prompt + output are 90 to 100 % of max_model_len."""
    limit = run.config.get("max_model_len")
    rows = run.requests.read(("prompt_tokens", "output_tokens"), run.notes).dropna()
    if not isinstance(limit, int) or rows.empty:
        return None
    total = rows["prompt_tokens"] + rows["output_tokens"]
    return float(((total >= NEAR * limit) & (total <= limit)).mean())


def rejected_share(run: Run) -> float | None:
    """Share of the requests sent that were rejected."""
    sent = run.request_counts.get("sent")
    return run.request_counts.get("rejected", 0) / sent if sent else None


def headroom_bytes(run: Run) -> float | None:
    """What of the card PyTorch had not reserved at the peak."""
    memory, reserved = run.environment.get("memory"), run.number("allocator", "peak_reserved_bytes")
    if not isinstance(memory, Mapping) or reserved is None:
        return None
    usable, held_back = memory.get("usable_bytes"), memory.get("held_back_bytes", 0)
    return None if usable is None else float(usable - held_back - reserved)


def release(run: Run) -> Release | None:
    """How soon cancelled requests gave their memory back; None where no client left."""
    freed = run.summary.get("disconnect_to_freed_s")
    if isinstance(freed, Mapping):
        if not freed.get("count"):
            return None
        return Release(int(freed["count"]), freed.get("p50"), freed.get("p99"), None)
    rows = _cancelled(run)
    if rows.empty:
        return None
    waits_s = rows["end_s"] - rows["left_s"]
    held = (rows["prompt_tokens"] + rows["generated_tokens"]).where(rows["admitted_s"].notna(), 0)
    mean_s = run.number("simulated_s")
    span_s = None if mean_s is None else mean_s * len(run.each)  # requests are of all repeats
    return Release(
        len(rows),
        float(waits_s.quantile(0.5, interpolation="lower")),
        float(waits_s.max()),
        float((held * waits_s).sum()) / span_s if span_s else None,
    )


def same_again(run: Run, runs: Sequence[Run]) -> str | None:
    """Whether another run of the same settings and seed ended with the same counts of the
    allocator, in words; None where it has none, or there is no other."""
    state = _state(run)
    settings = _settings(run)
    others = [each for each in runs if each is not run and _settings(each) == settings]
    known = [(each, _state(each)) for each in others if each.completed]
    known = [(each, other) for each, other in known if other is not None]
    if state is None or settings is None or not known:
        return None
    unlike = [each.folder for each, other in known if other != state]
    if not unlike:
        return f"the same {len(known) + 1} times"
    return f"not the same as {', '.join(unlike)}"


def _cancelled(run: Run) -> pd.DataFrame:
    """Cancelled requests whose clients left, in process, with the moments at which they did."""
    frames = [frame for path in run.requests.paths if (frame := _read_left(path)) is not None]
    if not frames:
        return pd.DataFrame()
    rows = pd.concat(frames, ignore_index=True)
    by_time = rows["sent_s"] + rows["leave.after_s"]
    said = rows["generated_tokens"] >= rows["leave.after_tokens"]
    rows["left_s"] = np.fmin(by_time, rows["last_token_s"].where(said))
    return rows[rows["left_s"].notna()]


def _read_left(path: Any) -> pd.DataFrame | None:
    """None of a part that is damaged or does not say when clients left."""
    try:
        with pq.ParquetFile(path) as file:
            if not set(_LEFT) <= set(file.schema_arrow.names):
                return None
            rows: pd.DataFrame = file.read(columns=list(_LEFT)).flatten().to_pandas()
    except (pa.ArrowException, OSError):
        return None
    cancelled = rows[rows["status"] == "cancelled"]
    return cancelled.drop(columns=["status", "leave.kind"]).astype("float64")


def _settings(run: Run) -> str | None:
    """All settings but what a run is called; None where they are not known."""
    if not run.config:
        return None
    facts = [run.device, run.summary.get("seed"), run.settings]
    return json.dumps(facts, sort_keys=True, default=str)


def _state(run: Run) -> tuple[float | None, ...] | None:
    state = tuple(run.number("allocator", key) for key in _STATE)
    return None if state[1] is None else state
