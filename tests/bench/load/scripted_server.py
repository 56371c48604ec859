"""An OpenAI-style server with known delays, in a process of its own: it prints its port.

`python scripted_server.py SCRIPT` with a Script as JSON. What it was asked, and when a client left,
goes to the script's `log` as JSON lines. Written on bare asyncio streams: nothing of ours is in it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any, TextIO


@dataclass
class Script:
    """What the server does. `stall` holds back first tokens due between two seconds from the first
    request on until the second of them. `refusals` are statuses that a request gets before it is
    answered, one an attempt. `ids`, `usage` and `done` say what streams carry; `bare_end` leaves
    out all that says an answer is whole; `error_after` breaks off after so many tokens. `hangs_up`
    closes connections without a word: after an answer, or at_next, when the next request came."""

    log: str
    first_s: float = 0.1
    gap_s: float = 0.02
    stall: tuple[float, float] | None = None
    refusals: list[int] = field(default_factory=list)
    retry_after: str | None = None
    ids: bool = True
    usage: bool = True
    done: bool = True
    bare_end: bool = False
    error_after: int | None = None
    padding: int = 0
    tokens_a_chunk: int = 1
    metrics: str = ""
    models: list[str] = field(default_factory=lambda: ["scripted"])
    owned_by: str = "test"
    api_key: str | None = None
    hangs_up: str | None = None


class Server:
    def __init__(self, script: Script, log: TextIO) -> None:
        self.script = script
        self.log = log
        self.first_request_s: float | None = None
        self.attempts: dict[str, int] = {}

    def note(self, **content: Any) -> None:
        self.log.write(json.dumps(content) + "\n")
        self.log.flush()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.note(connected=True)
        served = 0
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, path, _ = head.split("\r\n")[0].split(" ")
                headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:-2])
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                if self.script.hangs_up == "at_next" and served:
                    break
                await self.answer(writer, method, path, headers, body)
                served += 1
                if self.script.hangs_up == "after":
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(
        self,
        writer: asyncio.StreamWriter,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
    ) -> None:
        script = self.script
        if script.api_key and headers.get("authorization") != f"bearer {script.api_key}":
            await self.whole(writer, 401, {"error": {"message": "no"}})
        elif path == "/v1/models":
            models = [{"id": name, "owned_by": script.owned_by} for name in script.models]
            await self.whole(writer, 200, {"data": models})
        elif path == "/metrics" and script.metrics:
            await self.whole(writer, 200, script.metrics)
        elif method == "POST":
            await self.generate(writer, path, json.loads(body))
        else:
            await self.whole(writer, 404, {"error": {"message": "not here"}})

    async def whole(self, writer: asyncio.StreamWriter, status: int, body: Any) -> None:
        content = (body if isinstance(body, str) else json.dumps(body)).encode()
        extra = f"Retry-After: {self.script.retry_after}\r\n" if self.script.retry_after else ""
        head = f"HTTP/1.1 {status} X\r\n{extra}Content-Length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)
        await writer.drain()

    async def generate(self, writer: asyncio.StreamWriter, path: str, body: dict[str, Any]) -> None:
        now_s = time.monotonic()
        script = self.script
        if self.first_request_s is None:
            self.first_request_s = now_s
        self.note(path=path, at_s=now_s, body=body)
        key = json.dumps(body)
        attempt = self.attempts[key] = self.attempts.get(key, -1) + 1
        if attempt < len(script.refusals):
            status = script.refusals[attempt]
            await self.whole(writer, status, {"error": {"message": f"refused {attempt}"}})
            return
        due_s = now_s + script.first_s
        if script.stall:
            start_s, end_s = (self.first_request_s + at_s for at_s in script.stall)
            due_s = end_s if start_s <= due_s < end_s else due_s
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        try:
            await self.stream(writer, path, body, due_s)
            self.note(finished=True, at_s=time.monotonic())
        except (ConnectionError, asyncio.CancelledError):
            self.note(left=True, at_s=time.monotonic(), body=body)
            raise

    async def stream(
        self, writer: asyncio.StreamWriter, path: str, body: dict[str, Any], due_s: float
    ) -> None:
        script, chat = self.script, path.endswith("chat/completions")
        total = body["max_tokens"]
        if chat:
            self.event(writer, {"choices": [{"index": 0, "delta": {"role": "assistant"}}]})
        for number in range(0, total, script.tokens_a_chunk):
            await asyncio.sleep(due_s - time.monotonic())
            if number == script.error_after:
                self.event(writer, {"error": {"message": "out of luck"}})
                await self.end(writer)
                return
            ids = list(range(number, min(number + script.tokens_a_chunk, total)))
            last = ids[-1] == total - 1 and not script.bare_end
            for index in range(body.get("n", 1)):
                self.event(writer, {"choices": [self.choice(index, ids, last, chat)]})
            await writer.drain()
            due_s += script.gap_s
        if script.usage:
            tokens = total * body.get("n", 1)
            self.event(
                writer,
                {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": tokens}},
            )
        if script.done and not script.bare_end:
            self.send(writer, b"data: [DONE]\n\n")
        await self.end(writer)

    def choice(self, index: int, ids: list[int], last: bool, chat: bool) -> dict[str, Any]:
        text = "".join(f" t{token}" for token in ids) + "." * self.script.padding
        said: dict[str, Any] = {"delta": {"content": text}} if chat else {"text": text}
        if self.script.ids:
            said["token_ids"] = ids
        return {"index": index, **said, "finish_reason": "length" if last else None}

    def event(self, writer: asyncio.StreamWriter, content: dict[str, Any]) -> None:
        self.send(writer, f"data: {json.dumps(content)}\n\n".encode())

    @staticmethod
    def send(writer: asyncio.StreamWriter, content: bytes) -> None:
        writer.write(b"%x\r\n%s\r\n" % (len(content), content))

    @staticmethod
    async def end(writer: asyncio.StreamWriter) -> None:
        writer.write(b"0\r\n\r\n")
        await writer.drain()


async def main(script: Script) -> None:
    with open(script.log, "a", encoding="utf-8") as log:
        server = Server(script, log)
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=1 << 24)
        print(listening.sockets[0].getsockname()[1], flush=True)
        gc.freeze()
        async with listening:
            await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(Script(**json.loads(sys.argv[1]))))
