"""A run is a trace: sent again, its requests are the same, and so is what becomes of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.metrics.records import REPLAYED
from tests.bench.engine.runs import run
from tests.virtual_gpu import skip_without_virtual_gpu

SMALL = ("backend=paged_prefix", "model=llama2_7b", "gpu=a100_40gb", "kv_budget=4GiB")
AS_SENT = ["request_id", "kind", "prompt_tokens", "output_tokens", "branches", *REPLAYED.names]


@pytest.fixture(autouse=True)
def virtual_gpu() -> None:
    skip_without_virtual_gpu()


def requests(folder: Path) -> pa.Table:
    return pq.read_table(folder / "requests").sort_by("request_id")


@pytest.mark.parametrize(
    "traffic",
    [
        ("workload=chat", "workload.num_requests=30", "workload/clients=leaving"),
        ("workload=chat", "workload.num_requests=150", "workload/arrivals=closed_loop"),
        pytest.param(
            ("workload=parallel_sampling", "workload.num_requests=20", "stop_after_s=30"),
            marks=pytest.mark.long,
        ),
    ],
    ids=["turns that clients leave", "a closed loop", "samples"],
)
def test_a_run_is_sent_again_as_it_was(tmp_path: Path, traffic: tuple[str, ...]) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    run_ = run(first, *SMALL, *traffic)
    replay = run(again, *SMALL, "workload=trace", f"workload.path={first}")
    sent, sent_again = requests(first), requests(again)
    assert sent.select(AS_SENT).equals(sent_again.select(AS_SENT))
    assert sent["scheduled_s"].equals(sent_again["scheduled_s"])
    if "stop_after_s=30" not in traffic:  # else requests that were not answered now are
        assert run_.summary["prefix_cache"] == replay.summary["prefix_cache"]
        assert run_.summary["requests"] == replay.summary["requests"]
        for moment in ("admitted_s", "first_token_s", "end_s"):
            assert sent[moment].equals(sent_again[moment]), moment
