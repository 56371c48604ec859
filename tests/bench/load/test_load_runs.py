"""Whole runs: Locust's master and workers against a scripted server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml

from bench.load.command import main
from bench.load.messages import CUT_SHORT
from bench.load.summary import read_attempts
from bench.report.results import load_runs
from tests.bench.load.conftest import Scripted, Serve

ROOT = Path(__file__).parents[3]
FAST = {"first_s": 0.02, "gap_s": 0.002}
LOCUSTS_PATIENCE_S = 60
"""MASTER_HEARTBEAT_TIMEOUT of locust.runners, whose import would replace this process's sockets."""


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """40 requests of 30 + 8 tokens, 50 ms apart."""
    return write_trace(tmp_path / "trace.jsonl", 40, 50, 8)


Start = Callable[[list[str]], subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts fragbench in a process of its own, which does not outlive the test."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(arguments: list[str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "bench", *arguments]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


def write_trace(path: Path, count: int, every_ms: int, output: int) -> str:
    line = '{{"timestamp": {}, "input_length": 30, "output_length": {}, "hash_ids": []}}\n'
    path.write_text("".join(line.format(number * every_ms, output) for number in range(count)))
    return f"workload.path={path}"


def load(server: Scripted, out: Path, *arguments: str) -> tuple[int, dict[str, Any], pd.DataFrame]:
    code = main([f"url={server.url}", f"out={out}", "connections=8", *arguments])
    return code, json.loads((out / "summary.json").read_text()), read_attempts(out)


METRICS = "vllm:num_requests_running 3\nvllm:kv_cache_usage_perc 0.5\n"


def test_a_run_leaves_its_files(serve: Serve, tmp_path: Path, trace: str) -> None:
    out = tmp_path / "run"
    server = serve(**FAST, metrics=METRICS, api_key="secret")
    code, summary, attempts = load(server, out, "workload=trace", trace, "api_key=secret")
    assert code == 0
    assert (summary["status"], summary["cause"]) == ("completed", None)
    assert summary["model"] == "scripted"
    assert (summary["backend"], summary["engine"]) == ("server", "server")
    assert summary["requests"]["sent"] == summary["requests"]["completed"] == 40
    assert summary["ttft_s"]["count"] == 40
    assert summary["itl_s"]["count"] == 40 * 7
    assert summary["ttft_s"]["p50"] >= 0.02 - 1e-3
    assert set(attempts["counted_by"]) == {"ids"}
    assert attempts["scheduled_s"].tolist() == pytest.approx([0.05 * n for n in range(40)])
    assert (attempts["sent_s"] >= attempts["scheduled_s"]).all()
    cpu = summary["workers"][0]["cpu"]
    assert 0 < cpu["mean"] <= cpu["busiest"]
    scraped = pq.read_table(out / "scraped").to_pandas()
    assert (scraped["running"] == 3).all()
    assert (scraped["kv_usage"] == 0.5).all()
    assert len(scraped) >= 2
    for name in ("config.yaml", "environment.json", "run.log"):
        assert "secret" not in (out / name).read_text()
    assert yaml.safe_load((out / "config.yaml").read_text())["load"]["url"] == server.url
    (run,) = load_runs(out)
    assert (run.status, run.request_counts["completed"]) == ("completed", 40)
    assert len(run.requests.read(("request_id",), [])["request_id"]) == 40


def asked(server: Scripted) -> Counter[str]:
    """What a server was asked, in any order."""
    return Counter(json.dumps(body, sort_keys=True) for body in server.bodies)


CHAT = (
    "workload=chat", "workload.num_requests=30", "workload.rate_rps=20", "tell_lengths=true",
    "workload.max_total_tokens=2000", "workload.kinds.chat.think_time_s=0.02",
    "workload.kinds.chat.turns.mean_tokens=3", "workload.kinds.chat.message.mean_tokens=20",
    "workload.kinds.chat.answer.mean_tokens=20", "workload.kinds.chat.system_prompts=null",
)  # fmt: skip


def users(number: int) -> tuple[str, ...]:
    """A closed loop of so many."""
    return ("workload/arrivals=closed_loop", f"workload.arrivals.users={number}")


@pytest.mark.parametrize("loop", [(), users(3)], ids=["open", "closed"])
def test_workers_together_send_what_one_does(
    serve: Serve, tmp_path: Path, loop: tuple[str, ...]
) -> None:
    """Prompts, lengths and later turns, which have the answers that the server gave."""
    one, two = serve(**FAST), serve(**FAST)
    load(one, tmp_path / "one", *CHAT, *loop)
    _, summary, attempts = load(two, tmp_path / "two", *CHAT, *loop, "processes=2")
    assert asked(one) == asked(two)
    assert sum(asked(one).values()) == 30
    assert set(attempts["worker"]) == {0, 1}
    assert [worker["worker"] for worker in summary["workers"]] == [0, 1]
    lengths = {body["fragbench"]["output_tokens"]: body["max_tokens"] for body in one.bodies}
    assert all(told == length for told, length in lengths.items())


def test_no_user_waits_for_another_in_an_open_loop(
    serve: Serve, tmp_path: Path, trace: str
) -> None:
    """The server answers after 3 s, when all of 2 s have been sent."""
    _, _, attempts = load(serve(first_s=3), tmp_path / "run", "workload=trace", trace)
    assert attempts["sent_s"].max() < attempts["first_token_s"].min()


def test_a_stall_shows_in_all_that_was_due_meanwhile(
    serve: Serve, tmp_path: Path, trace: str
) -> None:
    """First tokens due between 0.5 s and 1.5 s after the first request come at 1.5 s."""
    server = serve(first_s=0.02, gap_s=0.002, stall=(0.5, 1.5))
    _, _, attempts = load(server, tmp_path / "run", "workload=trace", trace)
    first_s = attempts["sent_s"].min()
    due = attempts[attempts["scheduled_s"].between(first_s + 0.6, first_s + 1.4)]
    assert len(due) >= 15
    ttft_s = due["first_token_s"] - due["scheduled_s"]
    assert (ttft_s >= first_s + 1.5 - due["scheduled_s"] - 1e-3).all()


def test_closed_loop_users_have_one_request_each(serve: Serve, tmp_path: Path, trace: str) -> None:
    _, _, attempts = load(serve(**FAST), tmp_path / "run", "workload=trace", trace, *users(4))
    assert len(attempts) == 40
    for user in range(4):
        own = attempts[attempts["request_id"] % 4 == user].sort_values("request_id")
        assert (own["sent_s"].to_numpy()[1:] >= own["end_s"].to_numpy()[:-1]).all()


def test_nothing_completed_is_null_and_exit_code_1(
    serve: Serve, tmp_path: Path, trace: str
) -> None:
    server = serve(refusals=[503] * 9)
    code, summary, _ = load(server, tmp_path / "run", "workload=trace", trace)
    assert code == 1
    assert (summary["status"], summary["cause"]) == (
        "failed",
        "no request completed: HTTP 503: refused 0",
    )
    assert summary["requests"]["rejected"] == 40
    assert summary["throughput"]["requests_per_s"] is None
    assert summary["ttft_s"]["p50"] is None


def test_the_end_of_a_run_leaves_what_is_open_unfinished(serve: Serve, tmp_path: Path) -> None:
    """Requests 0.3 s apart, of which seven are due before 2 s; none ends before."""
    trace = write_trace(tmp_path / "slow.jsonl", 20, 300, 8)
    server = serve(first_s=0.02, gap_s=1.0)
    code, summary, attempts = load(
        server, tmp_path / "run", "workload=trace", trace, "stop_after_s=2"
    )
    assert code == 1
    assert summary["requests"]["unfinished"] == len(attempts) == 7
    assert (attempts["generated_tokens"] >= 1).any()
    assert attempts["end_s"].isna().all()


def test_all_that_clients_do_adds_up(serve: Serve, tmp_path: Path) -> None:
    """Leaving, slow reading and retries together."""
    trace = write_trace(tmp_path / "many.jsonl", 200, 10, 20)
    server = serve(**FAST, refusals=[429], retry_after="0")
    _, summary, attempts = load(
        server, tmp_path / "run", "workload=trace", trace, "processes=2", "retries.limit=1",
        "workload/clients=leaving", "workload.clients.leave_share=0.4",
        "workload.clients.leave=[after_s,after_tokens,before_first_token]",
        "workload.clients.leave_after_s=[0.02,0.05]", "workload.clients.slow_share=0.2",
        "workload.clients.slow_tokens_per_s=100",
    )  # fmt: skip
    counts = summary["requests"]
    assert counts["sent"] == 200 == sum(counts.values()) - counts["sent"]
    assert counts["completed"] + counts["cancelled"] == 200
    assert sum(summary["clients"]["left"].values()) == counts["cancelled"] > 30
    assert summary["clients"]["retries"] == len(attempts) - 200 > 100
    assert summary["clients"]["slow_readers"] > 10


def test_a_signal_ends_a_run_early(serve: Serve, start: Start, tmp_path: Path) -> None:
    out = tmp_path / "run"
    trace = write_trace(tmp_path / "long.jsonl", 1000, 50, 100)
    server = serve(first_s=0.02, gap_s=0.01)
    command = ["load", f"url={server.url}", f"out={out}", "workload=trace", trace, "connections=2"]
    process = start(command)
    server.wait_for("path", 20)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["status"], summary["cause"]) == ("incomplete", "stopped by the user")
    assert summary["requests"]["unfinished"] > 0
    assert len(read_attempts(out)) == summary["requests"]["sent"]


def test_a_worker_that_dies_is_a_cause(serve: Serve, start: Start, tmp_path: Path) -> None:
    out = tmp_path / "run"
    trace = write_trace(tmp_path / "long.jsonl", 1000, 50, 10)
    server = serve(**FAST)
    command = ["load", f"url={server.url}", f"out={out}", "workload=trace", trace, "connections=2"]
    process = start(command)
    server.wait_for("path", 60)
    os.kill(child_of(process.pid, b"worker"), signal.SIGKILL)
    assert process.wait(timeout=60) == 1
    summary = json.loads((out / "summary.json").read_text())
    assert summary["status"] == "incomplete"
    assert summary["cause"] == "a worker ended with exit code -9 (process 0)"
    assert summary["requests"]["completed"] > 0


@pytest.mark.long
def test_a_run_that_locust_cut_short_is_not_complete(
    serve: Serve, start: Start, tmp_path: Path
) -> None:
    """A worker that hears nothing of its master for a minute gives up, without being told."""
    out = tmp_path / "run"
    trace = write_trace(tmp_path / "long.jsonl", 3000, 50, 10)
    server = serve(**FAST)
    process = start(["load", f"url={server.url}", f"out={out}", "workload=trace", trace])
    server.wait_for("path", 60)
    master = child_of(process.pid, b"master")
    os.kill(master, signal.SIGSTOP)
    time.sleep(LOCUSTS_PATIENCE_S + 5)
    os.kill(master, signal.SIGCONT)
    assert process.wait(timeout=60) == 1
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["status"], summary["cause"]) == ("incomplete", CUT_SHORT)
    assert summary["requests"]["completed"] > 0


def child_of(parent: int, role: bytes) -> int:
    """The process that a run started as its master or worker."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    lines = {child: Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
    return next(int(child) for child, line in lines.items() if role in line.split(b"\0"))


def test_workers_may_be_started_apart(
    serve: Serve, start: Start, tmp_path: Path, trace: str
) -> None:
    """As on another machine: by the master's address, which has the settings for all."""
    out, port, server = tmp_path / "run", free_port(), serve(**FAST)
    other = start(["load", "master_host=127.0.0.1", f"master_port={port}"])
    code, summary, attempts = load(
        server, out, "workload=trace", trace, f"master_port={port}", "expect_workers=2"
    )
    assert (code, summary["requests"]["completed"]) == (0, 40)
    assert set(attempts["worker"]) == {0, 1}
    assert other.wait(timeout=60) == 0


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def test_locusts_processes_import_neither_torch_nor_aiohttp() -> None:
    code = (
        "import sys, bench.load.process, bench.load.master, bench.load.worker\n"
        "import workloads.generated, workloads.kinds.sessions, workloads.trace\n"
        "print(sorted({'torch', 'aiohttp'} & set(sys.modules)))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.long
def test_measured_times_are_the_servers(serve: Serve, tmp_path: Path) -> None:
    """64 streams of a server that gives the first token after 100 ms and then one every 20 ms.
    Timed: for a machine with two cores to itself."""
    trace = write_trace(tmp_path / "streams.jsonl", 640, 10, 100)
    _, summary, _ = load(serve(), tmp_path / "run", "workload=trace", trace, *users(64))
    for name, true_s in (("ttft_s", 0.1), ("itl_s", 0.02)):
        assert summary[name]["p50"] == pytest.approx(true_s, abs=0.002)
        assert summary[name]["p99"] == pytest.approx(true_s, abs=0.010)
