"""Clients that leave or lag, and a server that is told to stop or whose engine dies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.experiment import compose_cells
from bench.serve import engine_client
from bench.serve.command import serve_cell
from tests.bench.serve.running import VIRTUAL, Answered, Server, running
from tests.virtual_gpu import skip_without_virtual_gpu

LONG = {"prompt": "a", "max_tokens": 8000, "stream": True}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    skip_without_virtual_gpu()
    return tmp_path / "run"


def held_bytes(server: Server) -> float:
    return server.metric("fragbench:held_bytes")


def ended(server: Server, reason: str) -> float:
    return server.metric("fragbench:requests_ended_total", status="cancelled", reason=reason)


def in_engine(server: Server) -> float:
    """Running and queued requests: `contiguous` has memory for four of their greatest length."""
    waiting = server.metric("vllm:num_requests_waiting")
    return server.metric("vllm:num_requests_running") + waiting


def until_closed(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@pytest.mark.parametrize(
    "backend",
    [
        "paged_prefix",
        pytest.param("contiguous", marks=pytest.mark.long),
        pytest.param("bucketed", marks=pytest.mark.long),
    ],
)
def test_whoever_closes_the_connection_frees_memory(out: Path, backend: str) -> None:
    with running(out, f"backend={backend}", *VIRTUAL) as server:
        streaming = [server.begin(LONG | {"prompt": "x" * n}) for n in range(1, 9)]
        waiting = [server.begin(LONG | {"stream": False, "n": 2}) for _ in range(4)]
        server.wait_until(lambda: in_engine(server) == 12 and held_bytes(server) > 0)
        for connection in streaming + waiting:
            connection.close()
        server.wait_until(lambda: ended(server, "disconnect") == 12)
        server.wait_until(lambda: held_bytes(server) == 0)
        assert server.metric("fragbench:cancel_to_free_seconds_count", reason="disconnect") == 12
        assert server.metric("vllm:request_success_total", finished_reason="abort") == 12
    assert server.summary()["requests"]["cancelled"] == 12


def test_a_reader_that_lags_keeps_its_memory_and_gets_all_of_its_tokens(out: Path) -> None:
    """It reads nothing: what fits into buffers comes, and then its sequence stands still, held,
    while others go on. Then it reads all."""
    body = LONG | {"ignore_eos": True, "return_token_ids": True}
    with running(out, "backend=paged", *VIRTUAL, "time_scale=1000") as server:
        with server.begin(body, receive_bytes=4096) as lagging:
            generated = standing_still(server)
            still_since_s = time.monotonic()
            assert 0 < generated < 8000
            assert held_bytes(server) > 0
            assert server.post("completions", {"prompt": "b", "max_tokens": 50}).status == 200
            assert server.metric("vllm:generation_tokens_total") == generated + 50
            still_s = time.monotonic() - still_since_s
            said = b""
            while not said.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
                said += lagging.recv(1 << 20)
        assert said.count(b'"token_ids":[') == 8000
        assert ended(server, "disconnect") == 0
        decode_s, gaps_s = (
            server.metric(f"vllm:{name}_seconds_sum")
            for name in ("request_decode_time", "inter_token_latency")
        )
        assert decode_s - gaps_s > still_s, "the reader's pause is no latency of a token"


def standing_still(server: Server) -> float:
    """Tokens generated when there come no more: the same in ten looks."""
    seen: list[float] = []

    def still() -> bool:
        seen.append(server.metric("vllm:generation_tokens_total"))
        return len(seen) > 10 and len(set(seen[-10:])) == 1 and seen[-1] > 0

    server.wait_until(still)
    return seen[-1]


@pytest.mark.long
def test_a_reader_that_lags_and_leaves_frees_memory(out: Path) -> None:
    with running(out, "backend=paged", *VIRTUAL, "time_scale=1000") as server:
        with server.begin(LONG, receive_bytes=4096):
            standing_still(server)
            assert held_bytes(server) > 0
        server.wait_until(lambda: ended(server, "disconnect") == 1)
        server.wait_until(lambda: held_bytes(server) == 0)


@pytest.mark.long
def test_a_reader_that_lags_too_long_is_cut_off(out: Path) -> None:
    limits = ("time_scale=1000", "request_timeout_s=3")
    with (
        running(out, "backend=paged", *VIRTUAL, *limits) as server,
        server.begin(LONG, receive_bytes=4096) as lagging,
    ):
        server.wait_until(lambda: ended(server, "timeout") == 1)
        server.wait_until(lambda: held_bytes(server) == 0)
        assert b"[DONE]" not in until_closed(lagging)


def test_a_server_that_stops_finishes_what_it_answers_and_takes_no_more(out: Path) -> None:
    body = LONG | {"max_tokens": 150}
    with running(out, "backend=paged", *VIRTUAL) as server:
        with server.begin(body | {"max_tokens": 150}, Connection="close") as streaming:
            server.wait_until(lambda: server.metric("vllm:num_requests_running") == 1)
            server.signal(signal.SIGTERM)
            server.wait_until(lambda: server.request("GET", "/health").status == 503)
            refused = server.post("completions", body)
            assert refused.status == 503
            assert refused.json["error"]["message"] == "the server is shutting down."
            assert int(refused.headers["Retry-After"]) >= 1
            said = until_closed(streaming)
        assert said.count(b"data: {") == 150
        assert b"data: [DONE]" in said
        server.process.wait(60)
    assert server.summary()["status"] == "completed"
    assert server.summary()["requests"]["completed"] == 1


@pytest.mark.parametrize("signals", [1, pytest.param(2, marks=pytest.mark.long)])
def test_what_takes_longer_than_the_drain_is_ended(out: Path, signals: int) -> None:
    """One signal and no patience, or patience and a second signal."""
    drain = "drain_s=0" if signals == 1 else "drain_s=1000"
    with running(out, "backend=paged", *VIRTUAL, drain) as server:
        with (
            server.begin(LONG, Connection="close") as streaming,
            server.begin(LONG | {"stream": False}, Connection="close") as waiting,
        ):
            server.wait_until(lambda: server.metric("vllm:num_requests_running") == 2)
            server.signal(signal.SIGINT)
            if signals == 2:
                server.wait_until(lambda: server.request("GET", "/health").status == 503)
                server.signal(signal.SIGINT)
            said, refused = until_closed(streaming), until_closed(waiting)
        server.process.wait(60)
    assert b"shutting down" in said
    assert said.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert refused.startswith(b"HTTP/1.1 503 ")
    assert json.loads(refused.partition(b"\r\n\r\n")[2])["error"]["code"] == "unavailable"
    assert server.summary()["requests"]["cancelled"] == 2


def engine_pid(server: Server) -> int:
    """The process whose parent's parent is the server: the fork server's only child."""
    [fork_server] = children(server.process.pid)
    [engine] = children(fork_server)
    return engine


def children(pid: int) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text()
        except OSError:  # it ended meanwhile
            continue
        if int(stat.rpartition(")")[2].split()[1]) == pid:
            yield int(entry.name)


def test_an_engine_that_dies_ends_the_server_with_a_cause(out: Path) -> None:
    with running(out, "backend=paged", *VIRTUAL, exit_code=1) as server:
        with server.begin(LONG, Connection="close") as streaming:
            server.wait_until(lambda: server.metric("vllm:num_requests_running") == 1)
            os.kill(engine_pid(server), signal.SIGKILL)
            said = until_closed(streaming)
        assert b"the engine ended" in said
        server.process.wait(60)
    assert "SIGKILL" in out.with_suffix(".log").read_text(encoding="utf-8")


def test_an_engine_whose_activations_do_not_fit_ends_the_server_with_the_cause(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine_client, "JOB", "tests.bench.serve.dying_engine:run")
    (cell,), _ = compose_cells([*VIRTUAL, "backend=paged", "serve.port=0", f"out={out}"], ["x"])
    answers: list[Answered] = []

    def ask(line: str) -> None:
        server = Server(None, line.split()[-1], out)  # type: ignore[arg-type]
        body = LONG | {"stream": False}
        asking.append(
            threading.Thread(target=lambda: answers.append(server.post("completions", body)))
        )
        asking[0].start()

    asking: list[threading.Thread] = []
    assert asyncio.run(serve_cell(cell, ask)) == 1
    asking[0].join()
    why = "the activations of one sequence did not fit: CUDA out of memory."
    assert f"the engine ended: {why}" in capsys.readouterr().err
    (answered,) = answers
    assert answered.status == 500
    assert answered.json["error"]["message"].startswith(f"the request failed: {why}")
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert summary["status"] == "failed"
    assert summary["requests"]["unfinished"] == 1
    assert why in (out / "run.log").read_text(encoding="utf-8")
