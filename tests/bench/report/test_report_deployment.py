"""The report's answers for a deployment, each by hand from what a run left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.report.deployment import NOBODY_LEFT, RUN_TWICE, deployment_html
from bench.report.facts import (
    Release,
    headroom_bytes,
    live_tokens,
    most_live_tokens,
    near_share,
    rejected_share,
    release,
    same_again,
)
from bench.report.repeats import gathered
from bench.report.results import Run, load_runs

GIB = 1 << 30
WriteRun = Callable[..., Path]
NOBODY = {"kind": None, "after_s": None, "after_tokens": None}


def request(status: str, prompt: int = 100, generated: int = 10, **other: Any) -> dict[str, Any]:
    """A row of requests/, sent at 1 s and admitted at 2 s."""
    row = {
        "status": status, "prompt_tokens": prompt, "output_tokens": 20, "sent_s": 1.0,
        "generated_tokens": generated, "admitted_s": 2.0, "last_token_s": 5.0, "end_s": 6.0,
        "leave": NOBODY,
    }  # fmt: skip
    return row | other


def only(root: Path) -> Run:
    (run,) = load_runs(root)
    return run


def write_requests(run: Path, *rows: dict[str, Any]) -> None:
    """Replaces the rows of a run."""
    schema = pa.Table.from_pylist(
        [request("cancelled", leave={"kind": "after_s", "after_s": 1.0, "after_tokens": 1})]
    ).schema
    pq.write_table(
        pa.Table.from_pylist(list(rows), schema=schema), run / "requests/part-00000.parquet"
    )


def test_the_budget_is_told_in_tokens_and_what_was_reached(write_run: WriteRun) -> None:
    # 8 GiB of 128 KiB a token; 2 GiB of live tokens in every sample.
    run = only(write_run("one"))
    assert live_tokens(run) == 65_536
    assert most_live_tokens(run) == 16_384
    assert "16,384 (25.0 %)" in deployment_html([run])


def test_requests_near_the_limit_are_counted(write_run: WriteRun) -> None:
    """Of 20 output tokens each: 100, 90, 89 and 101 in all, of at most 100."""
    folder = write_run("one")
    write_requests(folder, *(request("completed", prompt) for prompt in (80, 70, 69, 81)))
    (folder / "config.yaml").write_text("max_model_len: 100\n", encoding="utf-8")
    assert near_share(only(folder)) == 0.5


def test_rejected_requests_are_a_share_of_those_sent(write_run: WriteRun) -> None:
    counts = {"sent": 8, "completed": 6, "failed": 0, "cancelled": 0, "rejected": 2}
    assert rejected_share(only(write_run("one", requests=counts))) == 0.25


def test_headroom_is_the_card_less_the_peak(write_run: WriteRun) -> None:
    folder = write_run("one")  # which reserved 24 GiB at its peak
    assert headroom_bytes(only(folder)) is None
    memory = {"usable_bytes": 39 * GIB, "held_back_bytes": 10 * GIB}
    (folder / "environment.json").write_text(json.dumps({"memory": memory}), encoding="utf-8")
    assert headroom_bytes(only(folder)) == 5 * GIB


def test_memory_is_free_some_time_after_clients_left(write_run: WriteRun) -> None:
    """At 4 s by time; at 5 s with the token they waited for; at 3.5 s, by time, in the queue."""
    folder = write_run("one", simulated_s=10.0)
    by_time = {"kind": "after_s", "after_s": 3.0, "after_tokens": None}
    by_tokens = {"kind": "after_tokens", "after_s": None, "after_tokens": 10}
    waiting = {"kind": "in_prefill", "after_s": 2.5, "after_tokens": 1}
    write_requests(
        folder,
        request("cancelled", 300, 50, leave=by_time),
        request("cancelled", 400, 10, leave=by_tokens),
        request("cancelled", 500, 0, leave=waiting, admitted_s=None, last_token_s=None, end_s=3.5),
        request("completed", 500, 20, leave=by_time),
        request("cancelled", 700, 5),  # by the end of the run, not by a client
    )
    # 2 s, 1 s and 0 s; the third held nothing: (350 x 2 + 410 x 1) / 10 tokens.
    assert release(only(folder)) == Release(3, 1.0, 2.0, pytest.approx(111.0))


def test_repeats_hold_what_one_of_them_does(write_run: WriteRun, tmp_path: Path) -> None:
    """350 tokens for 2 of 10 s, in each of two runs: more clients, no more memory at a time."""
    leave = {"kind": "after_s", "after_s": 3.0, "after_tokens": None}
    for seed in (0, 1):
        folder = write_run(f"seed={seed}", simulated_s=10.0, seed=seed, name=f"seed={seed}")
        write_requests(folder, request("cancelled", 300, 50, leave=leave))
    (run,) = gathered(load_runs(tmp_path))
    assert release(run) == Release(2, 2.0, 2.0, pytest.approx(70.0))


def test_over_http_the_summary_says_how_long_it_took(write_run: WriteRun) -> None:
    freed = {"mean": 0.3, "p50": 0.25, "p90": 0.5, "p95": None, "p99": None, "count": 12}
    run = only(write_run("one", disconnect_to_freed_s=freed))
    assert release(run) == Release(12, 0.25, None, None)
    assert "not known over HTTP" in deployment_html([run])


def test_nobody_left_is_no_delay(write_run: WriteRun) -> None:
    folder = write_run("one")
    write_requests(folder, request("completed"))
    assert release(only(folder)) is None
    assert release(only(write_run("other", disconnect_to_freed_s={"count": 0}))) is None


def test_a_run_that_left_no_requests_says_nothing_of_clients(write_run: WriteRun) -> None:
    folder = write_run("one", status="failed", allocator=None)
    for part in (folder / "requests").iterdir():
        part.unlink()
    said = deployment_html([only(folder)])
    assert NOBODY_LEFT not in said
    assert "no allocator statistics" not in said


def test_two_runs_alike_say_whether_the_allocator_s_state_comes_again(
    write_run: WriteRun, tmp_path: Path
) -> None:
    more = {"peak_allocated_bytes": 20 * GIB, "peak_reserved_bytes": 25 * GIB,
            "num_alloc_retries": 2, "num_ooms": 1}  # fmt: skip
    for name in ("a", "b"):
        write_run(name)
    write_run("bucketed", "bucketed")
    write_run("seed", seed=1)
    runs = {run.folder: run for run in load_runs(tmp_path)}
    every = list(runs.values())
    assert same_again(runs["a"], every) == same_again(runs["b"], every) == "the same 2 times"
    assert same_again(runs["bucketed"], every) is same_again(runs["seed"], every) is None
    assert RUN_TWICE in deployment_html(every)
    write_run("c", allocator=more)
    every = load_runs(tmp_path)
    assert [same_again(run, every) for run in every if run.folder in "abc"] == [
        "not the same as c", "not the same as c", "not the same as a, b"
    ]  # fmt: skip
