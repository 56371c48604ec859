"""Timelines of bounded size against all the samples that went into them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.metrics.records import TIMELINE, UNFILLED
from bench.metrics.thinned import COUNTERS, ThinnedWriter

GAUGES = {
    "running", "waiting", "token_states_bytes", "shared_bytes", "unfilled_bytes", "rounding_bytes",
    "cached_bytes", "free_bytes", "kv_budget_bytes", "memory_bound", "allocated_bytes",
    "requested_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "segments",
    "largest_free_bytes", "external_fragmentation", "live_tokens", "blocks_used", "blocks_free",
    "blocks_cached", "step_sequences", "step_tokens", "token_budget", "mean_prompt_tokens",
    "max_prompt_tokens", "mean_generated_tokens", "max_generated_tokens", "mean_ttft_s",
    "max_ttft_s", "mean_e2e_s", "max_e2e_s",
}  # fmt: skip
"""Columns of a timeline that are no counts."""


def samples(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """At irregular times, with values that are now and then undefined."""
    rng, time_s, rows = np.random.default_rng(seed), 0.0, []
    for number in range(count):
        row: dict[str, Any] = dict.fromkeys(TIMELINE.names)
        reserved = int(rng.integers(2**36))
        row |= {
            "time_s": time_s, "waiting": int(rng.integers(100)), "running": int(rng.integers(9)),
            "free_bytes": int(rng.integers(2**36)), "completed": number,
            "memory_bound": bool(rng.integers(2)), "reserved_bytes": reserved,
            "allocated_bytes": reserved - int(rng.integers(2**30)),
        }  # fmt: skip
        if number % 3 == 0:
            row |= {"mean_ttft_s": float(number), "max_ttft_s": float(number)}
        rows.append(row)
        time_s += float(rng.choice([1.0, 1.0, 5.0]))
    return rows


def write(folder: Path, rows: list[dict[str, Any]], most: int) -> tuple[pd.DataFrame, int]:
    writer = ThinnedWriter(folder, TIMELINE, most, extremes=True)
    for row in rows:
        writer.add(row)
    writer.close()
    return pq.read_table(folder).to_pandas(), writer.stride


def test_every_column_of_a_timeline_is_a_count_or_not() -> None:
    counts = set(TIMELINE.names) & COUNTERS
    assert set(TIMELINE.names) == {"time_s"} | counts | GAUGES
    assert not counts & GAUGES


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 150), st.integers(16, 33), st.integers(0, 5))
def test_rows_are_the_means_counts_and_extremes_of_their_samples(
    tmp_path_factory: pytest.TempPathFactory, count: int, most: int, seed: int
) -> None:
    rows = samples(count, seed)
    found, stride = write(tmp_path_factory.mktemp("thinned") / "t", rows, most)
    assert len(found) <= most
    assert len(found) == -(-count // stride)
    whole = pd.DataFrame(rows)
    groups = np.arange(count) // stride
    seconds = whole["time_s"].diff().shift(-1).fillna(1e-9)  # the last one has no end yet
    for name in ("running", "waiting", "free_bytes", "reserved_bytes"):
        weighted = (whole[name] * seconds).groupby(groups).sum() / seconds.groupby(groups).sum()
        np.testing.assert_allclose(found[name], weighted, rtol=1e-9)
    by_row = whole.groupby(groups)
    assert list(found["time_s"]) == list(by_row["time_s"].first())
    assert list(found["completed"]) == list(by_row["completed"].last())
    gap = (whole["reserved_bytes"] - whole["allocated_bytes"]).groupby(groups)
    assert list(found["min_gap_bytes"]) == list(gap.min())
    assert list(found["max_gap_bytes"]) == list(gap.max())
    assert list(found["max_waiting"]) == list(by_row["waiting"].max())
    np.testing.assert_array_equal(
        found["max_ttft_s"], by_row["max_ttft_s"].max().astype(float)
    )  # undefined where none of them had one


def test_a_table_that_comes_later_keeps_to_the_same_rows(tmp_path: Path) -> None:
    timeline = ThinnedWriter(tmp_path / "timeline", TIMELINE, 16, extremes=True)
    unfilled = ThinnedWriter(tmp_path / "unfilled", UNFILLED, 16, follows=timeline)
    rows = samples(107)
    for number, row in enumerate(rows):
        timeline.add(row)
        if number >= 20:
            late = rows[number - 20]
            unfilled.add({"time_s": late["time_s"], "reservation_bytes": 8, "internal_bytes": 1})
    timeline.flush()
    unfilled.flush()
    # 107 samples are 14 rows of 8; 87 of them are split, which are 10 whole rows.
    times = pq.read_table(tmp_path / "timeline")["time_s"].to_pylist()
    split = pq.read_table(tmp_path / "unfilled").to_pandas()
    assert len(times) == 14
    assert list(split["time_s"]) == times[:10]
    assert set(split["reservation_bytes"]) == {8.0}
    assert split["undetermined_bytes"].isna().all()


def test_a_flush_changes_nothing_of_what_follows(tmp_path: Path) -> None:
    rows = samples(40)
    often = ThinnedWriter(tmp_path / "often", TIMELINE, 16, extremes=True)
    for row in rows:
        often.add(row)
        often.flush()
    often.close()
    found, _ = write(tmp_path / "once", rows, 16)
    pd.testing.assert_frame_equal(pq.read_table(tmp_path / "often").to_pandas(), found)


def test_a_timeline_without_samples_is_an_empty_table(tmp_path: Path) -> None:
    found, _ = write(tmp_path / "t", [], 16)
    assert len(found) == 0
    assert pa.int64() == pq.read_table(tmp_path / "t").schema.field("max_gap_bytes").type
