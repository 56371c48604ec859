"""driver=locust: our server, Locust against it, one run folder with what both saw."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

from bench.cli import main
from tests.virtual_gpu import skip_without_virtual_gpu

BACKENDS = ["contiguous", "contiguous_expandable", "bucketed", "vmm", "paged", "paged_prefix",
            "paged_radix"]  # fmt: skip
VIRTUAL = ("device=virtual", "model=llama3_8b", "gpu=a100_80gb", "kv_budget=8GiB")
TRAFFIC = ("workload=mixed", "workload.rate_rps=40", "sample_interval_s=0.5")
SHORT = "workload.kinds.chat.prompt.max_tokens=7000"
"""The longest prompts of the mix leave no room for an answer in 8,192 tokens."""


class Results(NamedTuple):
    summary: dict[str, Any]
    requests: pd.DataFrame
    folder: Path


def run(out: Path, *overrides: str) -> Results:
    skip_without_virtual_gpu()
    assert main(["run", *overrides, f"out={out}"]) == 0
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    return Results(summary, pd.read_parquet(out / "requests"), out)


def check_nothing_is_left(done: Results, sent: int) -> None:
    """Counts add up on both sides, and the last look at memory found none held."""
    counts = dict(done.summary["requests"])
    assert counts.pop("sent") == sum(counts.values()) == sent
    assert counts["failed"] == counts["rejected"] == counts["unfinished"] == 0
    served = done.summary["server"]["requests"]
    assert served["unfinished"] == served["failed"] == 0
    assert done.summary["clients"]["left"]
    cancelled = done.requests[done.requests["status"] == "cancelled"]
    assert counts["cancelled"] == len(cancelled) == sum(done.summary["clients"]["left"].values())
    freed = done.summary["disconnect_to_freed_s"]
    assert 0 < freed["count"] <= counts["cancelled"]
    assert freed["mean"] > 0


def cancel(out: Path, backend: str, sent: int) -> None:
    left = (SHORT, f"workload.num_requests={sent}", "load.leave.share=0.3", "time_scale=10")
    done = run(out, "driver=locust", f"backend={backend}", *VIRTUAL, *TRAFFIC, *left)
    check_nothing_is_left(done, sent)


@pytest.mark.parametrize("backend", ["contiguous", "paged_prefix"])
def test_of_requests_that_are_cancelled_nothing_is_left(backend: str, tmp_path: Path) -> None:
    cancel(tmp_path / "run", backend, 60)


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
def test_of_many_requests_that_are_cancelled_nothing_is_left(backend: str, tmp_path: Path) -> None:
    cancel(tmp_path / "run", backend, 1000)


def test_tokens_and_counts_are_those_of_the_in_process_driver(tmp_path: Path) -> None:
    """Chat turns find the answers before them in the prefix cache, over HTTP as in process."""
    traffic = ("workload=mixed", "workload.num_requests=30", "workload.rate_rps=10", "seed=3")
    common = ("backend=paged_prefix", *VIRTUAL, *traffic, "time_scale=5")
    inside = run(tmp_path / "inside", "driver.clock=wall", *common)
    over_http = run(tmp_path / "http", "driver=locust", *common)
    virtual = run(tmp_path / "virtual", *common)
    columns = ["request_id", "kind", "prompt_tokens", "output_tokens", "generated_tokens",
               "branches", "status"]  # fmt: skip
    rows = [
        done.requests.sort_values("request_id")[columns].reset_index(drop=True)
        for done in (inside, over_http, virtual)
    ]
    for other in rows[1:]:
        pd.testing.assert_frame_equal(rows[0], other)
    assert inside.summary["requests"] == over_http.summary["requests"]


def test_files_of_both_sides_are_kept_and_reported(tmp_path: Path) -> None:
    done = run(tmp_path / "run", "driver=locust", "backend=paged", *VIRTUAL, *TRAFFIC,
               "workload.num_requests=20", "time_scale=10")  # fmt: skip
    names = {path.name for path in done.folder.iterdir()}
    assert {"client", "server_requests", "requests", "timeline", "summary.json"} <= names
    assert done.summary["time"] == "modelled"
    assert done.summary["lateness_s"]["count"] == 20
    moments = ["scheduled_s", "sent_s", "admitted_s", "first_token_s", "last_token_s", "end_s"]
    completed = done.requests[done.requests["status"] == "completed"]
    for earlier, later in pairwise(moments):
        assert (completed[earlier] <= completed[later]).all(), (earlier, later)
    assert main(["report", str(done.folder)]) == 0


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["workload=beam"], "beams, which cannot be asked for over HTTP"),
        (["driver.clock=virtual"], "driver.clock=virtual cannot be had over HTTP"),
        (["device=cpu", "backend.block_size=12"], "block_size=12"),
        (["load.users=0"], "load.users=0 is out of range"),
    ],
)
def test_what_cannot_be_driven_is_said_and_nothing_is_written(
    overrides: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_without_virtual_gpu()
    out = tmp_path / "run"
    arguments = ["driver=locust", "device=virtual", "backend=paged", *overrides, f"out={out}"]
    assert main(["run", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not out.exists()
