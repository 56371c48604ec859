"""Signals in the timeline of a run and what its incidents say, read back from its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.cli import main
from tests.bench.engine.runs import Run, run
from tests.virtual_gpu import skip_without_virtual_gpu

TIGHT = ("kv_budget=1GiB", "model=llama3_8b", "workload=sharegpt", "workload.rate_rps=40",
         "workload.duration_s=4", "max_model_len=2048", "sample_interval_s=0.5")  # fmt: skip


def test_the_timeline_has_every_signal(tmp_path: Path) -> None:
    skip_without_virtual_gpu()
    made = run(tmp_path / "run", "backend=paged_prefix", *TIGHT)
    rows = made.timeline
    token_bytes = made.summary["kv_bytes_per_token"]
    assert (rows["live_tokens"] * token_bytes == rows["token_states_bytes"]).all()
    for name, term in (("free", "free"), ("cached", "cached")):
        assert (rows[f"blocks_{name}"] * 16 * token_bytes == rows[f"{term}_bytes"]).all()
    assert rows[["blocks_used", "blocks_free", "blocks_cached"]].sum(axis=1).nunique() == 1
    assert rows["step_tokens"].between(1, rows["token_budget"]).all()
    assert rows["step_sequences"].max() > 1
    assert (rows["worker_restarts"] == 0).all()
    _has_all_completions(made)
    _counts_all_failures(made, tmp_path / "run")


def _has_all_completions(made: Run) -> None:
    """What completed between two rows is in the second: means of means, weighted, are the mean."""
    done = made.requests[made.requests["status"] == "completed"]
    rows = made.timeline.assign(new=made.timeline["completed"].diff().fillna(0))
    seen = done[done["end_s"] < rows["time_s"].max()]
    told = (rows["mean_prompt_tokens"] * rows["new"]).sum() / rows["new"].sum()
    assert told == pytest.approx(seen["prompt_tokens"].mean())
    ttft_s = seen["first_token_s"] - seen["sent_s"]
    assert rows["max_ttft_s"].max() == pytest.approx(ttft_s.max())
    assert rows["max_e2e_s"].max() == pytest.approx((seen["end_s"] - seen["sent_s"]).max())
    assert rows["max_generated_tokens"].max() == seen["generated_tokens"].max()


def _counts_all_failures(made: Run, folder: Path) -> None:
    lines = (folder / "incidents.jsonl").read_text().splitlines()
    incidents = [json.loads(line) for line in lines]
    assert len(incidents) == made.summary["incidents"] > 0
    refusals = sum(incident["refusals"] for incident in incidents)
    assert 0 < made.timeline["allocation_failures"].max() <= refusals
    assert {incident["layer"] for incident in incidents} == {"capacity"}, "blocks of 16"
    assert any(incident["largest_free_bytes"] is not None for incident in incidents)
    assert main(["incident", str(folder)]) == 0


def test_a_layout_without_blocks_has_none(tmp_path: Path) -> None:
    skip_without_virtual_gpu()
    made = run(tmp_path / "run", "backend=contiguous", *TIGHT, "stop_after_s=1")
    assert made.timeline[["blocks_used", "blocks_free", "blocks_cached"]].isna().all(axis=None)
