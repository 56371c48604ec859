"""Figures of several segments together, against those of all their rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.metrics.inter_token import BIN_RATIO, SHORTEST_S
from bench.metrics.records import REQUESTS
from bench.soak.pooled import pooled


def write_segment(folder: Path, ttft_s: list[float], **changed: Any) -> Path:
    """A segment with a completed request for each TTFT, of 100 tokens in and 11 out, the last of
    them 1 s after the first."""
    (folder / "requests").mkdir(parents=True)
    rows = pd.DataFrame(
        {
            "request_id": range(len(ttft_s)), "kind": "chat", "prompt_tokens": 100,
            "output_tokens": 11, "generated_tokens": 11, "branches": 1,
            "scheduled_s": 0.0, "sent_s": 0.0, "admitted_s": 0.0, "first_token_s": ttft_s,
            "last_token_s": np.array(ttft_s) + 1, "end_s": np.array(ttft_s) + 1,
            "status": "completed", "cause": None, "preemptions": 0, "cached_tokens": 0,
            "left": None, "slow_reader": False,
        }
    )  # fmt: skip
    table = pa.Table.from_pandas(rows, schema=REQUESTS, preserve_index=False)
    pq.write_table(table, folder / "requests" / "part-00000.parquet")
    figures = {
        "batch": {"mean": 4.0, "max": 6}, "preemptions": 2, "late_steps": None, "warnings": [],
        "prefix_cache": None, "sharing": {"saved": 0.0}, "memory_bound": None, "held_waste": 0.2,
        "incidents": 1, "allocator": {"peak_reserved_bytes": 10, "driver_calls": {"cudaMalloc": 3}},
        "sources": {}, "driver_s": 0.5, "steps": 100, "activation_replays": 7,
        "step_s": {"measured": None, "modelled": 8.0},
    } | changed.pop("figures", {})  # fmt: skip
    checkpoint = {
        "simulated_s": 100.0, "sent": len(ttft_s), "sent_until_s": 99.0, "itl_bins": {"5": 10},
        "weights": {"busy_s": 50.0, "held_byte_s": 1000.0, "shared_byte_s": 0.0},
        "facts": {"backend": "paged", "kv_budget_bytes": 8}, "figures": figures,
    } | changed  # fmt: skip
    (folder / "checkpoint.json").write_text(json.dumps(checkpoint), encoding="utf-8")
    return folder


@pytest.fixture
def segments(tmp_path: Path) -> list[Path]:
    """90 quick requests in 100 s, and 30 slow ones in 300 s, of which 4 more were sent."""
    quick = write_segment(tmp_path / "one", [1.0] * 90)
    weights = {"busy_s": 150.0, "held_byte_s": 3000.0, "shared_byte_s": 1000.0}
    bound = dict.fromkeys(("token_states", "external"), 0.5) | {"share_of_time": 0.5}
    figures = {
        "batch": {"mean": 8.0, "max": 5}, "held_waste": 0.6, "memory_bound": bound,
        "sharing": {"saved": 0.25},
        "allocator": {"peak_reserved_bytes": 30, "driver_calls": {"cudaMalloc": 1, "cudaFree": 2}},
    }  # fmt: skip
    slow = write_segment(
        tmp_path / "two", [10.0] * 30,
        simulated_s=300.0, sent=34, weights=weights, figures=figures, itl_bins={"5": 1, "9": 4},
    )  # fmt: skip
    return [quick, slow]


def test_percentiles_are_of_all_requests_together(segments: list[Path]) -> None:
    found = pooled(segments)
    assert found is not None
    # 90 of 120 take 1 s: the median is 1 s and the 90th percentile 10 s, not 5.5 s each
    assert found["ttft_s"] == {
        "mean": pytest.approx((90 + 300) / 120), "p50": 1.0, "p90": 10.0, "p95": 10.0, "p99": 10.0,
        "count": 120,
    }  # fmt: skip
    assert found["tpot_s"]["p50"] == pytest.approx(0.1)
    assert found["itl_s"]["count"] == 15
    assert found["itl_s"]["p50"] == pytest.approx(SHORTEST_S * BIN_RATIO**5.5)


def test_counts_add_up_and_rates_are_over_the_whole_time(segments: list[Path]) -> None:
    found = pooled(segments)
    assert found is not None
    assert found["requests"]["sent"] == 124
    assert (found["requests"]["completed"], found["requests"]["lost"]) == (120, 4)
    assert found["throughput"]["requests_per_s"] == pytest.approx(120 / 400)
    assert (found["preemptions"], found["incidents"], found["steps"]) == (4, 2, 200)
    assert found["allocator"]["peak_reserved_bytes"] == 30
    assert found["allocator"]["driver_calls"] == {"cudaMalloc": 4, "cudaFree": 2}
    assert found["step_s"] == {"measured": None, "modelled": 16.0}
    assert found["simulated_s"] == 400


def test_means_are_weighted_by_what_they_are_over(segments: list[Path]) -> None:
    found = pooled(segments)
    assert found is not None
    assert found["batch"] == {"mean": (4 * 50 + 8 * 150) / 200, "max": 6}
    assert found["held_waste"] == pytest.approx((0.2 * 1000 + 0.6 * 3000) / 4000)
    assert found["sharing"]["saved"] == pytest.approx(0.25 * 4000 / 5000)
    # only the second was memory-bound, for half of its 300 s
    assert found["memory_bound"]["share_of_time"] == pytest.approx(150 / 400)
    assert found["memory_bound"]["token_states"] == 0.5


def test_requests_that_were_recorded_were_sent(tmp_path: Path) -> None:
    """A server that outlives its worker for a moment writes what the last summary did not count."""
    folder = write_segment(tmp_path / "one", [1.0] * 10)
    summary = {"simulated_s": 90.0, "requests": {"sent": 9}}
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    found = pooled([folder])
    assert found is not None
    assert (found["requests"]["sent"], found["requests"]["lost"]) == (10, 0)
    assert found["simulated_s"] == 90


def test_a_segment_that_died_at_once_says_nothing(segments: list[Path], tmp_path: Path) -> None:
    (tmp_path / "three").mkdir()
    assert pooled([tmp_path / "three"]) is None
    assert pooled([*segments, tmp_path / "three"]) == pooled(segments)


def test_what_vllm_counted_adds_up(tmp_path: Path) -> None:
    parts = [
        write_segment(tmp_path / str(n), [1.0], figures={"vllm_counted": {"num_preemptions": n}})
        for n in (2, 3)
    ]
    found = pooled(parts)
    assert found is not None
    assert found["vllm_counted"] == {"num_preemptions": 5}
