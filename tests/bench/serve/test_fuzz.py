"""Malformed requests by the thousand: no 5xx, nothing left behind, and the server still serves."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.bench.serve.fuzzer import KINDS, draw_requests, fuzz
from tests.bench.serve.running import VIRTUAL, Server, running
from tests.virtual_gpu import skip_without_virtual_gpu

LIMITS = ("max_body_bytes=200000", "body_timeout_s=0.25", "time_scale=1000", "max_model_len=512",
          "max_queue=null")  # fmt: skip


def open_files(server: Server) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def test_requests_are_the_same_for_the_same_seed() -> None:
    assert draw_requests(3, 50) == draw_requests(3, 50) != draw_requests(4, 50)


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 400), pytest.param(1, 10_000, marks=pytest.mark.long)]
)
def test_malformed_requests_leave_the_server_as_it_was(
    tmp_path: Path, seed: int, count: int
) -> None:
    skip_without_virtual_gpu()
    with running(tmp_path / "run", "backend=paged_prefix", *VIRTUAL, *LIMITS) as server:
        assert server.post("completions", {"prompt": "a"}).status == 200
        before = open_files(server)
        counts, faults = asyncio.run(fuzz(server.port, seed, count))
        print(*sorted(counts.items()), sep="\n")
        assert faults == []
        kinds = {kind for kind, _ in counts}
        assert len(kinds) == len(set(KINDS))
        assert {status for _, status in counts} >= {200, 400, 404, 405, 408, 413, 415}
        server.wait_until(lambda: open_files(server) <= before)
        for name in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
            server.wait_until(lambda name=name: server.metric(name) == 0)  # type: ignore[misc]
        server.wait_until(lambda: server.metric("fragbench:held_bytes") == 0)
        assert server.metric("fragbench:requests_ended_total", status="failed") == 0
        assert server.request("GET", "/health").status == 200
        assert server.post("completions", {"prompt": "a"}).json["usage"]["completion_tokens"] == 16
    asked = server.summary()["requests"]
    assert asked["sent"] == asked["completed"] + asked["cancelled"] + asked["rejected"]
