"""Whole runs: the same one twice, what their files add up to, and published figures."""

from __future__ import annotations

import os
import pickle
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest

from tests.bench.engine.runs import Run, run

BACKENDS = ["contiguous", "contiguous_expandable", "bucketed", "vmm", "paged", "paged_prefix"]
STATUSES = ["completed", "failed", "cancelled", "rejected", "unfinished"]

# Minutes of chat at a load that memory cannot take; the clock stops with requests open.
SMALL = (
    "model=llama2_7b", "gpu=a100_40gb", "workload=mixed", "~workload.kinds.rag",
    "~workload.kinds.code", "workload.kinds.chat.share=1", "workload.rate_rps=6",
    "workload.num_requests=400", "kv_budget=4GiB", "stop_after_s=90", "sample_interval_s=2",
)  # fmt: skip


@cache
def small(backend: str) -> Run:
    with TemporaryDirectory() as folder:
        return run(Path(folder) / "run", f"backend={backend}", *SMALL)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_request_is_accounted_for(backend: str) -> None:
    counts = dict(small(backend).summary["requests"])
    assert counts["sent"] == sum(counts[status] for status in STATUSES) == 400
    requests = small(backend).requests
    assert sorted(requests["request_id"]) == list(range(400))
    assert {s: int((requests["status"] == s).sum()) for s in STATUSES} | {"sent": 400} == counts
    completed = requests[requests["status"] == "completed"]
    assert (completed["generated_tokens"] == completed["output_tokens"]).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_moments_of_a_request_are_in_order(backend: str) -> None:
    requests = small(backend).requests
    moments = ["scheduled_s", "sent_s", "admitted_s", "first_token_s", "last_token_s", "end_s"]
    for earlier, later in pairwise(moments):
        known = requests.dropna(subset=[earlier, later])
        assert (known[earlier] <= known[later]).all(), (earlier, later)
    unfinished = requests[requests["status"] == "unfinished"]
    assert unfinished["end_s"].isna().all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_memory_adds_up_at_every_sample(backend: str) -> None:
    run_ = small(backend)
    timeline, unfilled = run_.timeline, run_.unfilled
    terms = timeline[["token_states_bytes", "unfilled_bytes", "rounding_bytes", "cached_bytes",
                      "free_bytes"]]  # fmt: skip
    assert (terms >= 0).all(axis=None)
    assert (terms.sum(axis=1) == timeline["kv_budget_bytes"]).all()
    assert timeline["time_s"].is_monotonic_increasing
    assert list(unfilled["time_s"]) == list(timeline["time_s"])
    split = unfilled[["reservation_bytes", "internal_bytes", "undetermined_bytes"]]
    assert (split >= 0).all(axis=None)
    assert list(split.sum(axis=1)) == list(timeline["unfilled_bytes"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_shares_of_the_budget_are_a_whole(backend: str) -> None:
    shares = dict(small(backend).summary["memory_bound"])
    assert shares.pop("batch_mean") > 1
    assert 0 < shares.pop("share_of_time") <= 1
    assert sum(shares.values()) == pytest.approx(1, abs=1e-9)
    assert min(shares.values()) >= 0


def test_the_same_run_twice_is_the_same(tmp_path: Path) -> None:
    again = run(tmp_path / "again", "backend=bucketed", *SMALL)
    first = small("bucketed")
    for before, after in zip(first[1:], again[1:], strict=True):
        pd.testing.assert_frame_equal(before, after)
    assert first.summary | {"wall_s": 0} == again.summary | {"wall_s": 0}


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_is_sent_the_same(backend: str) -> None:
    columns = ["request_id", "kind", "scheduled_s", "sent_s", "prompt_tokens", "output_tokens"]
    sent, other = (
        r.requests[columns].sort_values("request_id", ignore_index=True)
        for r in (small("paged"), small(backend))
    )
    pd.testing.assert_frame_equal(sent, other)


# The PagedAttention paper, figure 2 (Kwon et al., SOSP 2023): live tokens in percent of KV memory.
PUBLISHED = {"orca_max": 20.4, "orca_pow2": 26.8, "orca_oracle": 38.2, "paged": 96.3}
# Figure 13a of the same: sequences running at a time.
PUBLISHED_BATCH = {"orca_max": 7.00, "orca_pow2": 9.81, "orca_oracle": 13.62, "paged": 30.42}


def _check_paper_waste(folder: Path, backend: str, seconds: float) -> None:
    summary = run(
        folder / "run", "experiment=paper_waste", f"backend={backend}",
        f"workload.duration_s={seconds}",
    ).summary  # fmt: skip
    shares = summary["memory_bound"]
    assert 100 * shares["token_states"] == pytest.approx(PUBLISHED[backend], abs=3)
    assert shares["batch_mean"] == pytest.approx(PUBLISHED_BATCH[backend], rel=0.1)


@pytest.mark.parametrize("backend", PUBLISHED)
def test_live_tokens_are_the_papers_share_of_memory(tmp_path: Path, backend: str) -> None:
    _check_paper_waste(tmp_path, backend, seconds=600.0)


@pytest.mark.long
@pytest.mark.parametrize("backend", PUBLISHED)
def test_live_tokens_over_the_papers_hour(tmp_path: Path, backend: str) -> None:
    _check_paper_waste(tmp_path, backend, seconds=3600.0)


@pytest.mark.long
@pytest.mark.parametrize("kv_budget", ["null", "8GiB"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_azure_conversation_hour(tmp_path: Path, backend: str, kv_budget: str) -> None:
    """19,366 requests to Llama 3 8B on an A100-80GB; with 8 GiB every backend is memory-bound."""
    traces = os.environ.get("FRAGBENCH_TRACES")
    if not traces:
        pytest.skip("FRAGBENCH_TRACES is not set: the public traces are not here")
    path = Path(traces) / "azure_llm_2023_conv.csv"
    summary = run(
        tmp_path / "run", f"backend={backend}", "workload=trace", f"workload.path={path}",
        f"kv_budget={kv_budget}",
    ).summary  # fmt: skip
    counts = summary["requests"]
    assert counts["sent"] == sum(counts[status] for status in STATUSES) == 19_366
    assert summary["status"] == "completed"
    assert counts["completed"] + counts["rejected"] == 19_366, "nobody fails, none is left"
    if kv_budget != "null":
        assert summary["memory_bound"] is not None


def test_a_snapshot_is_written_when_asked_for(tmp_path: Path) -> None:
    run(tmp_path / "with", "backend=contiguous", "memory_snapshot=true", *SMALL)
    content = (tmp_path / "with" / "memory_snapshot.pickle").read_bytes()
    assert content[:2] == b"\x80\x04", "pickle protocol 4, which PyTorch's viewer reads"
    snapshot = pickle.loads(content)
    assert snapshot["segments"]
    assert any(event["action"] == "alloc" for event in snapshot["device_traces"][0])
