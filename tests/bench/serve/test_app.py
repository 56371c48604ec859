"""The server over plain HTTP: what is refused and how, the key, limits, and modelled time."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import ClientSession, web

from bench.serve.api import Served, Wanted
from bench.serve.app import App
from bench.serve.listener import Listener, address, bind
from bench.serve.settings import ServeSettings
from bench.serve.tokenizer import ByteTokenizer
from tests.bench.serve.running import VIRTUAL, Answered, Server, running
from tests.virtual_gpu import skip_without_virtual_gpu

KEY = "a key, schlüsselfertig"
ENTER = {"Authorization": f"Bearer {KEY}".encode().decode("latin-1")}
JSON = {"Content_Type": "application/json"}
SHORT = {"prompt": "a", "max_tokens": 3}
LONG = {"prompt": [1, 2, 3], "max_tokens": 8000, "stream": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Ten seconds of modelled time pass in one; the queue and the body are short."""
    skip_without_virtual_gpu()
    limits = ("max_body_bytes=100000", "body_timeout_s=0.5", "max_queue=8", "time_scale=10",
              "request_timeout_s=5", f"api_key={KEY!r}", "served_model_name=lab/llama")  # fmt: skip
    out = tmp_path_factory.mktemp("serve") / "run"
    with running(out, "backend=paged", *VIRTUAL, "engine.max_num_seqs=4", *limits) as server:
        yield server


def refusal(answered: Answered, status: int) -> dict[str, Any]:
    """The error object of a response of this status."""
    assert answered.status == status, answered
    assert answered.headers["Content-Type"].startswith("application/json")
    error = answered.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"].endswith(".")
    return dict(error)


def post(server: Server, body: bytes, **headers: str) -> Answered:
    return server.request("POST", "/v1/completions", body, **ENTER, **(JSON | headers))


def test_a_request_with_the_key_is_answered(server: Server) -> None:
    answered = server.post("completions", SHORT, **ENTER)
    assert answered.status == 200
    assert answered.json["model"] == "lab/llama"
    assert answered.json["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer "},
     {"Authorization": KEY[:5]}, {"Authorization": "Basic x"},
     {"Authorization": "Bearer \xff\xfe"}],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/v1/models", "/v1/completions", "/v1/nothing"])
def test_no_key_no_answer(server: Server, path: str, headers: dict[str, str]) -> None:
    answered = server.request("POST", path, b"{}", **headers)
    assert refusal(answered, 401)["code"] == "invalid_api_key"
    assert answered.headers["WWW-Authenticate"] == "Bearer"


def test_health_and_metrics_need_no_key(server: Server) -> None:
    assert server.request("GET", "/health").json == {"status": "ok"}
    assert server.request("GET", "/metrics").status == 200


def test_the_key_is_in_no_result(server: Server) -> None:
    for name in ("config.yaml", "environment.json"):
        text = (server.out / name).read_text(encoding="utf-8")
        assert "api_key" in text
        assert "schl" not in text


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/completion", "/v1/completions/", "/%00", "/\xff"]
)
def test_an_unknown_route_is_404(server: Server, path: str) -> None:
    quoted = path.encode("latin-1").decode("latin-1")
    answered = server.raw(
        f"GET {quoted} HTTP/1.1\r\nAuthorization: {ENTER['Authorization']}\r\n"
        "Host: a\r\nConnection: close\r\n\r\n".encode("latin-1")
    )
    status = int(answered.split()[1])
    assert status in ((404,) if path.isascii() else (400, 404))
    assert b'{"error": ' in answered


def test_a_model_with_a_slash_is_found(server: Server) -> None:
    assert server.request("GET", "/v1/models/lab/llama", **ENTER).json["id"] == "lab/llama"
    assert server.request("GET", "/v1/models/lab%2Fllama", **ENTER).json["id"] == "lab/llama"
    error = refusal(server.request("GET", "/v1/models/lab", **ENTER), 404)
    assert error["code"] == "model_not_found"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", "/v1/completions", "POST"), ("DELETE", "/v1/chat/completions", "POST"),
     ("POST", "/v1/models", "GET"), ("PUT", "/health", "GET"), ("OPTIONS", "/metrics", "GET")],
)  # fmt: skip
def test_a_wrong_method_is_405(server: Server, method: str, path: str, allowed: str) -> None:
    answered = server.request(method, path, **ENTER)
    assert refusal(answered, 405)["code"] == "method_not_allowed"
    assert answered.headers["Allow"] == allowed


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b'{"prompt": "a"', "no JSON"),
        (b'{"prompt": "a"} x', "no JSON"),
        (b"[]", "JSON object"),
        (b"null", "JSON object"),
        (b'"prompt"', "JSON object"),
        (b'\xef\xbb\xbf{"prompt": "a"}', "no JSON"),
        (b'{"prompt": "\xff"}', "no UTF-8"),
        ('{"prompt": "a"}'.encode("utf-16"), "no UTF-8"),
        (b"[" * 90_000, "nested"),
        (b'{"a":' * 15_000, "nested"),
        (b'{"max_tokens": ' + b"9" * 5000 + b"}", "no JSON"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_body_that_is_no_json_object_is_400(server: Server, body: bytes, part: str) -> None:
    assert part in refusal(post(server, body), 400)["message"]


def test_another_content_type_is_415(server: Server) -> None:
    for kind in ("text/plain", "application/json; charset=utf-16", "nonsense", ""):
        answered = post(server, b'{"prompt": "a"}', Content_Type=kind)
        assert "Content-Type" in refusal(answered, 415)["message"]
    kind = "application/json; charset=UTF-8"
    assert post(server, json.dumps(SHORT).encode(), Content_Type=kind).status == 200


def test_a_body_too_large_is_413(server: Server) -> None:
    assert "100000" in refusal(post(server, b" " * 100_001), 413)["message"]
    chunked = (b"%x\r\n" % 50_000 + b" " * 50_000 + b"\r\n") * 3 + b"0\r\n\r\n"
    assert refusal(chunks(server, chunked), 413)
    bomb = gzip.compress(b" " * (64 << 20))
    assert len(bomb) < 100_000
    assert refusal(post(server, bomb, Content_Encoding="gzip"), 413)
    assert post(server, json.dumps(SHORT).encode().ljust(100_000)).status == 200


def test_a_compressed_body_is_read(server: Server) -> None:
    body = gzip.compress(json.dumps(SHORT).encode())
    assert post(server, body, Content_Encoding="gzip").status == 200
    for broken in (body[:-12], b"no gzip", body[:10] + b"\0\0" + body[12:]):
        assert post(server, broken, Content_Encoding="gzip").status == 400


def chunks(server: Server, body: bytes) -> Answered:
    """A POST whose body comes in HTTP's chunks, as they are written here."""
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nAuthorization: {ENTER['Authorization']}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    return parsed(server.raw(head.encode("latin-1") + body))


def parsed(data: bytes) -> Answered:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return Answered(int(first.split()[1]), headers, body)


def test_broken_chunks_are_400(server: Server) -> None:
    for body in (b"zz\r\nabc\r\n0\r\n\r\n", b"3\r\nabcdef\r\n0\r\n\r\n", b"-1\r\n\r\n"):
        assert chunks(server, body).status == 400
    data = json.dumps(SHORT).encode()
    assert chunks(server, b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data)).status == 200


def test_a_body_too_slow_is_408(server: Server) -> None:
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nAuthorization: {ENTER['Authorization']}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    assert "0.5 s" in refusal(parsed(server.raw(head.encode("latin-1"))), 408)["message"]


@pytest.mark.parametrize(
    "data",
    [
        b"GARBAGE\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n",
    ],
    ids=lambda data: repr(data[:24]),
)
def test_what_is_no_http_is_400_too(server: Server, data: bytes) -> None:
    assert refusal(parsed(server.raw(data)), 400)["type"] == "invalid_request_error"


def test_a_client_that_asks_first_is_told_to_go_on(server: Server) -> None:
    body = json.dumps(SHORT).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nAuthorization: {ENTER['Authorization']}\r\n"
        f"Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(head.encode("latin-1"))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        said = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert parsed(said).status == 200


def test_an_old_client_gets_a_stream_until_the_connection_closes(server: Server) -> None:
    body = json.dumps(SHORT | {"stream": True}).encode()
    head = (
        f"POST /v1/completions HTTP/1.0\r\nAuthorization: {ENTER['Authorization']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    answered = parsed(server.raw(head.encode("latin-1") + body))
    assert "Transfer-Encoding" not in answered.headers
    assert len(answered.events) == 3


def test_a_full_queue_is_429(server: Server) -> None:
    """Four run; eight may wait for their first token."""
    with server.begin(LONG | {"prompt": ["a"] * 4}, **ENTER):
        server.wait_until(lambda: server.metric("vllm:num_requests_running") == 4)
        with server.begin(LONG | {"prompt": ["a"] * 8}, **ENTER):
            server.wait_until(lambda: server.metric("vllm:num_requests_waiting") == 8)
            answered = server.post("completions", SHORT, **ENTER)
    error = refusal(answered, 429)
    assert (error["code"], error["type"]) == ("queue_full", "rate_limit_error")
    assert int(answered.headers["Retry-After"]) >= 1
    server.wait_until(lambda: server.metric("fragbench:held_bytes") == 0)
    assert server.post("completions", SHORT, **ENTER).status == 200


def test_more_prompts_than_may_ever_wait_are_400(server: Server) -> None:
    """To try again later would not help."""
    error = refusal(server.post("completions", SHORT | {"prompt": ["a"] * 9}, **ENTER), 400)
    assert "serve.max_queue=8" in error["message"]
    assert server.post("completions", SHORT | {"prompt": ["a"] * 8}, **ENTER).status == 200


def test_a_request_that_can_never_run_is_400(server: Server) -> None:
    error = refusal(server.post("completions", SHORT | {"n": 5}, **ENTER), 400)
    assert "max_num_seqs=4" in error["message"]


def test_a_request_that_takes_too_long_is_ended(server: Server) -> None:
    before = server.metric("fragbench:requests_ended_total", reason="timeout")
    began_s = time.monotonic()
    answered = server.post("completions", LONG | {"stream": False}, **ENTER)
    assert refusal(answered, 504)["code"] == "timeout"
    assert time.monotonic() - began_s >= 5
    assert server.metric("fragbench:requests_ended_total", reason="timeout") == before + 1


def test_a_stream_that_takes_too_long_ends_with_an_error(server: Server) -> None:
    answered = server.post("completions", LONG, **ENTER)
    assert answered.status == 200
    *texts, error = answered.events
    assert error["error"]["code"] == "timeout"
    assert all(text["choices"][0]["finish_reason"] is None for text in texts)
    server.wait_until(lambda: server.metric("fragbench:held_bytes") == 0)


def test_a_true_length_ends_an_answer_early(server: Server) -> None:
    body = SHORT | {"max_tokens": 50, "fragbench": {"output_tokens": 20, "request_id": 5}}
    done = server.post("completions", body | {"return_token_ids": True}, **ENTER).json
    assert done["choices"][0]["finish_reason"] == "stop"
    assert len(done["choices"][0]["token_ids"]) == 20


def test_modelled_steps_are_slept_at_the_time_scale(server: Server) -> None:
    """Modelled ITL is at least what reading Llama-3-8B's 16 GB takes an A100, of 2,039 GB/s."""
    count = server.metric("vllm:inter_token_latency_seconds_count")
    total = server.metric("vllm:inter_token_latency_seconds_sum")
    body = {"prompt": "a", "max_tokens": 101, "stream": True}
    assert len(server.post("completions", body, **ENTER).events) == 101
    count = server.metric("vllm:inter_token_latency_seconds_count") - count
    itl_s = (server.metric("vllm:inter_token_latency_seconds_sum") - total) / count
    assert count == 100
    assert itl_s > 0.1 * 16e9 / 2039e9


class Patient(ByteTokenizer):
    """Is done with a prompt when somebody else was answered meanwhile."""

    def __init__(self) -> None:
        super().__init__(256)
        self.others = threading.Event()

    def encode(self, text: str) -> list[int]:
        assert self.others.wait(30), "nobody else was answered"
        return super().encode(text)


def test_others_are_answered_while_a_large_text_is_made_to_tokens() -> None:
    tokenizer = Patient()

    async def answer(request: web.BaseRequest, wanted: Wanted, *more: object) -> web.Response:
        tokens = sum(map(len, wanted.prompts))
        return web.Response(text=str(tokens), headers={"Connection": "close"})

    service: Any = SimpleNamespace(
        served=Served("m", 256, 1 << 20, tokenizer), settings=ServeSettings(), trouble=None,
        answer=answer,
    )  # fmt: skip

    async def run() -> None:
        listener = Listener(App(service, None))
        with bind("127.0.0.1", 0) as listening:
            await listener.start(listening)
            url = address(listening)
            async with ClientSession() as client:
                body = {"prompt": "a" * 200_000, "max_tokens": 1}
                asking = asyncio.ensure_future(client.post(f"{url}/v1/completions", json=body))
                await asyncio.sleep(0.2)  # it is read
                async with client.get(f"{url}/health") as health:
                    assert health.status == 200
                tokenizer.others.set()
                async with await asking as answered:
                    assert await answered.text() == "200000"
            await listener.close(1.0)

    asyncio.run(run())
