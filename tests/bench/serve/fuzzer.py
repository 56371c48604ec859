"""Requests that are wrong in many ways, drawn from a seed, and a client that sends them."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

PATIENCE_S = 30.0
QUIET_S = 1.0
AT_ONCE = 32
PATHS = ("/v1/completions", "/v1/chat/completions")
FIELDS = ("prompt", "messages", "max_tokens", "max_completion_tokens", "min_tokens", "n", "stop",
          "temperature", "seed", "stream", "stream_options", "ignore_eos", "model", "logprobs",
          "top_p", "fragbench", "return_token_ids", "cache_salt", "logit_bias", "tools",
          "response_format", "echo", "user", "unknown")  # fmt: skip


class Sent(NamedTuple):
    """Pieces of bytes, with a pause of `pause_s` after each, and whether the sender hangs up."""

    kind: str
    pieces: list[bytes]
    pause_s: float = 0.0
    hang_up: bool = False


def deep(draw: Random) -> Any:
    value: Any = draw.choice([[], {}, 1])
    for _ in range(draw.randrange(1, 400)):
        value = [value] if draw.random() < 0.5 else {"a": value}
    return value


def odd_value(draw: Random) -> Any:
    """Something that a field may not expect."""
    return draw.choice(
        [None, True, False, 0, -1, 1, 2**31, -(2**63) - 1, 10**50, 1e308, -0.0, 0.5, 1e-320,
         float("nan"), float("inf"), "", "a", "\0", "\ud800", "é🦙", "x" * 10_000, "9", "null",
         [], [[]], [None], [1, "a"], [-1], [2**40], ["a"] * 300, [[1, 2], [3]], ["a", [1]], {},
         {"a": {}}, {"": None}, {"type": "text"}, {"include_usage": "x"}, {"request_id": 2**70},
         {"request_id": 2**40}, {"kind": "k" * 1000},
         {"output_tokens": 0}, [{"role": "user"}], [{"role": "user", "content": [[]]}],
         [{"role": {}, "content": "a"}], [{"role": "user", "content": "a"}], deep(draw)]
    )  # fmt: skip


def valid(draw: Random) -> dict[str, Any]:
    body: dict[str, Any] = {"max_tokens": draw.randrange(1, 8), "stream": draw.random() < 0.5}
    if draw.random() < 0.5:
        return body | {"prompt": "x" * draw.randrange(1, 40)}
    return body | {"messages": [{"role": "user", "content": "hello"}]}


def mutated(draw: Random) -> bytes:
    """A request with some odd values, as JSON, such as it is."""
    body = valid(draw)
    for field in draw.sample(FIELDS, draw.randrange(1, 4)):
        body[field] = odd_value(draw)
    return json.dumps(body).encode()


def http(
    draw: Random,
    body: bytes,
    *headers: str,
    method: str = "POST",
    path: str | None = None,
    length: int | None = None,
) -> bytes:
    """A request, of JSON unless headers say otherwise."""
    lines = [
        f"{method} {path or draw.choice(PATHS)} HTTP/1.1",
        "Host: a",
        *(headers or ("Content-Type: application/json",)),
        f"Content-Length: {len(body) if length is None else length}",
        "Connection: close",
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def odd_fields(draw: Random) -> Sent:
    return Sent("odd fields", [http(draw, mutated(draw))])


def truncated(draw: Random) -> Sent:
    body = mutated(draw)
    return Sent("truncated JSON", [http(draw, body[: draw.randrange(len(body))])])


def flipped(draw: Random) -> Sent:
    body = bytearray(mutated(draw))
    for _ in range(draw.randrange(1, 5)):
        body[draw.randrange(len(body))] = draw.randrange(256)
    return Sent("flipped bytes", [http(draw, bytes(body))])


def noise(draw: Random) -> Sent:
    return Sent("noise as a body", [http(draw, draw.randbytes(draw.randrange(2000)))])


def huge(draw: Random) -> Sent:
    size = draw.choice([1 << 16, 1 << 18, 1 << 20])
    filler = draw.choice([b" ", b"[", b'{"a":', b"9", b'"', b"\\u0000", b"1,"])
    start = draw.choice([b"", b'{"prompt": ', b'{"prompt": "', b'{"prompt": ['])
    return Sent("huge", [http(draw, start + filler * (size // len(filler)))])


def encoded(draw: Random) -> Sent:
    text = json.dumps(valid(draw) | {"user": "é"}, ensure_ascii=False)
    encoding = draw.choice(["utf-16", "utf-32", "latin-1", "utf-8-sig", "cp500", "utf-7"])
    kind = draw.choice(["application/json", f"application/json; charset={encoding}"])
    return Sent("wrong encoding", [http(draw, text.encode(encoding), f"Content-Type: {kind}")])


def compressed(draw: Random) -> Sent:
    body = gzip.compress(mutated(draw), mtime=0)
    body = draw.choice([body, body[: len(body) // 2], draw.randbytes(50), b" " * 100])
    coding = draw.choice(["gzip", "deflate", "br", "zstd", "nonsense", "identity"])
    headers = ("Content-Type: application/json", f"Content-Encoding: {coding}")
    return Sent("compressed", [http(draw, body, *headers)])


def media(draw: Random) -> Sent:
    kind = draw.choice(
        [
            "text/plain",
            "multipart/form-data",
            "",
            "a/b/c",
            "application/json;;",
            "application/x-www-form-urlencoded",
            "\xff",
            "application/json; charset",
        ]
    )
    return Sent("content type", [http(draw, mutated(draw), f"Content-Type: {kind}")])


def routed(draw: Random) -> Sent:
    path = draw.choice(
        [
            "/",
            "*",
            "/v1/",
            "/v1/models/x",
            "/v1/completions?x=%zz",
            "/%",
            "//",
            "/a b",
            "/v1/completions/../models",
            "http://a/v1/models",
            "/" + "x" * 9000,
            "\xff",
            "/v1/models",
            "/metrics",
            "/health",
        ]
    )
    method = draw.choice(
        [
            "GET",
            "PUT",
            "DELETE",
            "HEAD",
            "OPTIONS",
            "PATCH",
            "CONNECT",
            "TRACE",
            "BREW",
            "get",
            "G\0T",
            "",
        ]
    )
    return Sent("route", [http(draw, b"", method=method, path=path)])


def headed(draw: Random) -> Sent:
    extra = draw.choice(
        [
            "X: " + "y" * 10_000,
            "no colon",
            ": empty",
            "X\0: a",
            "X: \x01",
            "Transfer-Encoding: chunked",
            "Transfer-Encoding: gzip",
            "Expect: tea",
            "Expect: 100-continue",
            "Upgrade: websocket\r\nConnection: upgrade",
            "Upgrade: h2c",
            "Content-Length: 5",
            "Content-Length: -1",
            "Host: b",
            "Authorization: Bearer \xff",
            "Accept: \xff;q=x",
            "Cookie: " + ";" * 500,
            "\r\n".join(f"X{number}: a" for number in range(200)),
        ]
    )
    return Sent("header", [http(draw, mutated(draw), "Content-Type: application/json", extra)])


def chunked(draw: Random) -> Sent:
    body = mutated(draw)
    size = draw.choice(
        [
            f"{len(body):x}",
            f"{len(body):x};ext",
            "0",
            "-1",
            "zz",
            "ffffffffffffffff",
            f"{len(body) + 7:x}",
            "",
            "1" * 5000,
        ]
    )
    head = (
        f"POST {PATHS[0]} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    end = draw.choice([b"\r\n0\r\n\r\n", b"\r\n", b"", b"\r\n0\r\nX: a\r\n\r\n"])
    return Sent("chunks", [head.encode() + size.encode() + b"\r\n" + body + end])


def no_http(draw: Random) -> Sent:
    line = draw.choice(
        [
            b"GARBAGE",
            b"GET",
            b"GET / HTTP/3.0",
            b"\x16\x03\x01\x02\x00\x01\x00",
            b"PRI * HTTP/2.0",
            b"POST /v1/completions",
            draw.randbytes(40),
            b"",
        ]
    )
    return Sent("no HTTP", [line + b"\r\n\r\n" + draw.randbytes(draw.randrange(60))])


def pipelined(draw: Random) -> Sent:
    one = http(draw, mutated(draw)).replace(b"Connection: close\r\n", b"")
    return Sent("pipelined", [one * draw.randrange(2, 5) + http(draw, mutated(draw))])


def slow(draw: Random) -> Sent:
    """The body drips, stalls or never comes whole."""
    body = mutated(draw)
    request = http(draw, body, length=len(body) + draw.choice([0, 0, 1, 10_000]))
    count = draw.randrange(2, 5)
    size = -(-len(request) // count)
    pieces = [request[start : start + size] for start in range(0, len(request), size)]
    return Sent("slow body", pieces, pause_s=draw.choice([0.01, 0.1, 0.3]))


def hung_up(draw: Random) -> Sent:
    """The sender leaves, somewhere in its request or before the answer."""
    request = http(draw, draw.choice([mutated(draw), json.dumps(valid(draw)).encode()]))
    end = draw.choice([draw.randrange(1, len(request)), len(request)])
    return Sent("hung up", [request[:end]], pause_s=draw.choice([0.0, 0.02]), hang_up=True)


KINDS: tuple[Callable[[Random], Sent], ...] = (
    odd_fields, odd_fields, odd_fields, odd_fields, truncated, flipped, noise, huge, encoded,
    compressed, media, routed, headed, chunked, no_http, pipelined, slow, hung_up,
)  # fmt: skip


def draw_requests(seed: int, count: int) -> list[Sent]:
    """The same for the same seed."""
    draw = Random(seed)
    return [draw.choice(KINDS)(draw) for _ in range(count)]


class Came(NamedTuple):
    """The statuses of the responses that came, none if the server only closed the connection, and
    what was wrong with them."""

    statuses: list[int]
    fault: str | None


async def send(port: int, sent: Sent) -> Came:
    """Sends a request and reads until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with suppress(ConnectionError):
            for piece in sent.pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(sent.pause_s)
        data = b"" if sent.hang_up else await received(reader, sent)
        return judged(data, to_head=sent.pieces[0].startswith(b"HEAD "))
    except TimeoutError:
        return Came([], "the server neither answered nor closed the connection")
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def received(reader: asyncio.StreamReader, sent: Sent) -> bytes:
    """What comes until the end. Some requests leave the server waiting for more, rightly: then,
    what comes until nothing does."""
    may_wait = sent.kind in ("no HTTP", "chunks", "header", "flipped bytes")
    data = bytearray()
    with suppress(ConnectionError):
        while True:
            try:
                quiet_s = QUIET_S if may_wait else PATIENCE_S
                piece = await asyncio.wait_for(reader.read(1 << 16), quiet_s)
            except TimeoutError:
                if may_wait:
                    break
                raise
            if not piece:
                break
            data += piece
    return bytes(data)


_HEAD = re.compile(rb"HTTP/[01]\.[0-9] (\d{3}) [^\r\n]*\r\n((?:[^\r\n]+\r\n)*)\r\n")


def judged(data: bytes, *, to_head: bool) -> Came:
    """A response is a success, or a refusal of 4xx with an error object."""
    statuses = []
    while data:
        head = _HEAD.match(data)
        if head is None:
            return Came(statuses, f"no response: {data[:200]!r}")
        status = int(head[1])
        statuses.append(status)
        body, data = split_body(head[2], b"" if to_head else data[head.end() :])
        refused = status >= 400 and not to_head
        if status >= 500 or b"server_error" in body or (refused and not is_error(body)):
            return Came(statuses, f"{status}: {body[:500]!r}")
    return Came(statuses, None)


def split_body(headers: bytes, rest: bytes) -> tuple[bytes, bytes]:
    """A response's body and what follows it."""
    length = re.search(rb"Content-Length: (\d+)", headers)
    if length:
        return rest[: int(length[1])], rest[int(length[1]) :]
    if b"Transfer-Encoding: chunked" in headers:
        body, _, rest = rest.partition(b"\r\n0\r\n\r\n")
        return body, rest
    return b"", rest  # 100 Continue


def is_error(body: bytes) -> bool:
    return set(json.loads(body)["error"]) == {"message", "type", "param", "code"}


async def fuzz(port: int, seed: int, count: int) -> tuple[Counter[tuple[str, int]], list[str]]:
    """Sends `count` requests, many at once; counts statuses by kind (0: none came), and tells
    faults."""
    counts: Counter[tuple[str, int]] = Counter()
    faults: list[str] = []
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(sent: Sent) -> None:
        async with turns:
            came = await send(port, sent)
        counts.update((sent.kind, status) for status in came.statuses or [0])
        if came.fault is not None:
            faults.append(f"{sent.kind}: {sent.pieces[0][:300]!r}: {came.fault[:500]}")

    await asyncio.gather(*map(one, draw_requests(seed, count)))
    return counts, faults
