"""driver=locust: our server, Locust against it, one run folder with what both saw."""

from __future__ import annotations

import json
import os
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import yaml

from bench.cli import main
from bench.plugins import make
from tests.bench.test_cells import descendants, start, wait_until
from tests.virtual_gpu import skip_without_virtual_gpu
from workloads.base import Workload

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


def run(out: Path, *overrides: str, code: int = 0) -> Results:
    skip_without_virtual_gpu()
    assert main(["run", *overrides, f"out={out}"]) == code
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
    last = pd.read_parquet(done.folder / "scraped").sort_values("time_s").iloc[-1]
    assert (last["running"], last["waiting"], last["kv_usage"]) == (0, 0, 0)


def cancel(out: Path, backend: str, sent: int) -> None:
    left = (SHORT, f"workload.num_requests={sent}", "workload/clients=leaving",
            "workload.clients.leave_share=0.4", "time_scale=10")  # fmt: skip
    done = run(out, "driver=locust", f"backend={backend}", *VIRTUAL, *TRAFFIC, *left)
    check_nothing_is_left(done, sent)


@pytest.mark.parametrize(
    "backend", [pytest.param("contiguous", marks=pytest.mark.long), "paged_prefix"]
)
def test_of_requests_that_are_cancelled_nothing_is_left(backend: str, tmp_path: Path) -> None:
    cancel(tmp_path / "run", backend, 60)


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
def test_of_many_requests_that_are_cancelled_nothing_is_left(backend: str, tmp_path: Path) -> None:
    cancel(tmp_path / "run", backend, 1000)


def test_tokens_and_counts_are_those_of_the_in_process_driver(tmp_path: Path) -> None:
    """Chat turns find the answers before them in the prefix cache, over HTTP as in process."""
    traffic = ("workload=chat", "workload.num_requests=30", "workload.rate_rps=10", "seed=3",
               "workload.kinds.chat.turns.mean_tokens=3", "workload.kinds.chat.think_time_s=1",
               "workload.kinds.chat.answer.mean_tokens=100")  # fmt: skip
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
    check_same_traffic(inside, over_http)
    check_same_traffic(virtual, over_http)


def check_same_traffic(one: Results, other: Results) -> None:
    """The same load on the engine, in its own seconds, and the same hits: wide bounds, for what a
    slow machine adds counts time_scale times as much."""
    starts = [done.requests.set_index("request_id")["scheduled_s"] for done in (one, other)]
    firsts = sorted(first_turn_ids(one) & set(starts[0].index))
    assert np.diff(starts[0][firsts]) == pytest.approx(np.diff(starts[1][firsts]), abs=1e-3)
    for section, name in (("throughput", "requests_per_s"), ("batch", "mean")):
        ours, theirs = (done.summary[section][name] for done in (one, other))
        assert 0.4 <= ours / theirs <= 2.5, (section, name)
    hits, queries = (
        [done.summary["prefix_cache"][name] for done in (one, other)]
        for name in ("hit_tokens", "query_tokens")
    )
    assert queries[0] == queries[1]
    assert hits[0] == pytest.approx(hits[1], rel=0.2)
    assert hits[0] > 0


def first_turn_ids(done: Results) -> set[int]:
    config = yaml.safe_load((done.folder / "config.yaml").read_text(encoding="utf-8"))
    workload: Workload = make(config["workload"], "workload")
    return {request.request_id for request in workload.requests(config["seed"])}


def find(pid: int, role: str) -> int:
    """The server of a driven run, `http`, or its engine: a child of the server's fork server."""
    cells = [child for child in descendants(pid) if b"bench.load.server_process" in command(child)]
    (http,) = cells
    return http if role == "http" else descendants(http)[1]


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@pytest.mark.parametrize("role", ["engine", pytest.param("http", marks=pytest.mark.long)])
def test_a_server_that_dies_ends_the_run_with_its_cause(role: str, tmp_path: Path) -> None:
    """An hour of traffic, and what clients saw until then is kept."""
    skip_without_virtual_gpu()
    out = tmp_path / "run"
    running = start("run", "driver=locust", "backend=paged", *VIRTUAL, "workload=mixed",
                    "workload.rate_rps=20", "workload.duration_s=3600", SHORT, "time_scale=10",
                    f"out={out}")  # fmt: skip
    try:
        wait_until(lambda: any(out.glob("client/*.parquet")))
        os.kill(find(running.pid, role), signal.SIGKILL)
        shown, _ = running.communicate(timeout=120)
    finally:
        running.kill()
    assert running.returncode == 1, shown
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert summary["status"] == "failed"
    assert summary["cause"].startswith("the server ended: "), summary["cause"]
    assert "SIGKILL" in summary["cause"] or "-9" in summary["cause"]
    assert summary["requests"]["completed"] > 0
    assert summary["ttft_s"]["p50"] > 0
    assert len(pd.read_parquet(out / "requests")) == summary["requests"]["sent"]
    assert main(["report", str(out)]) == 0


@pytest.mark.long
def test_a_run_of_which_nothing_completes_failed(tmp_path: Path) -> None:
    leave = ("workload/clients=leaving", "workload.clients.leave_share=1",
             "workload.clients.leave=[before_first_token]",
             "workload.clients.leave_before_first_token_s=0",
             "serve.api_key=the-clients-get-it")  # fmt: skip
    traffic = (*VIRTUAL, *TRAFFIC, SHORT, "workload.num_requests=5", "time_scale=5")
    done = run(tmp_path / "run", "driver=locust", "backend=paged", *traffic, *leave, code=1)
    assert done.summary["status"] == "failed"
    assert done.summary["cause"] == "no request completed: 5 cancelled"
    assert done.summary["throughput"]["requests_per_s"] is None


def test_files_of_both_sides_are_kept_and_reported(tmp_path: Path) -> None:
    done = run(tmp_path / "run", "driver=locust", "backend=paged", *VIRTUAL, *TRAFFIC,
               "workload.num_requests=20", "time_scale=10", SHORT,
               "serve.api_key=se-cret", "load.api_key=se-cret")  # fmt: skip
    names = {path.name for path in done.folder.iterdir()}
    assert {"client", "server_requests", "requests", "timeline", "summary.json"} <= names
    assert done.summary["time"] == "modelled"
    assert done.summary["lateness_s"]["count"] == 20
    moments = ["scheduled_s", "sent_s", "admitted_s", "first_token_s", "last_token_s", "end_s"]
    completed = done.requests[done.requests["status"] == "completed"]
    for earlier, later in pairwise(moments):
        assert (completed[earlier] <= completed[later]).all(), (earlier, later)
    assert main(["report", str(done.folder)]) == 0
    for path in done.folder.rglob("*"):
        assert path.is_dir() or b"se-cret" not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["workload=beam"], "beams, which cannot be asked for over HTTP"),
        (["driver.clock=virtual"], "driver.clock=virtual cannot be had over HTTP"),
        (["device=cpu", "backend.block_size=12"], "block_size=12"),
        (["load.processes=0"], "load.processes=0 is out of range"),
        (["load.url=http://10.1.1.1:99"], "load.url=http://10.1.1.1:99 is not used with driver="),
        (["serve.port=1234"], "serve.port=1234 is not used with driver=locust"),
        (["serve.host=0.0.0.0"], "serve.host=0.0.0.0 is not used with driver=locust"),
        (["load.vocab_size=500000"], "load.vocab_size=500000 is more than the 128256 ids of"),
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
