"""The HTTP process's side of the engine: starts its process, asks, and hands out what it says."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.device.launcher import DeviceKind, Finished, Job, Launcher
from bench.errors import SettingError
from bench.serve.channel import (
    LINE_LIMIT,
    OWN_IDS,
    Ask,
    Cancel,
    Ended,
    Pause,
    Ready,
    Reason,
    Stats,
    Stop,
    ToEngine,
    Tokens,
    decode,
    encode,
)
from bench.serve.numbers import Numbers

JOB = "bench.serve.engine_process:run"
TICK_S = 0.1
LAST_WORDS_S = 5.0
LOG = "run.log"


class Stream:
    """What the engine says of one request, in order; Ended comes last.

    With `buffer_tokens` the engine stops giving a request tokens while its reader is that many
    steps behind: its memory stays held.
    """

    def __init__(self, engine: EngineClient, number: int, buffer_tokens: int | None) -> None:
        self.id = number
        self._engine = engine
        self._buffer_tokens = buffer_tokens
        self._told: asyncio.Queue[Tokens | Ended] = asyncio.Queue()
        self._paused = False
        self._cancelled = False
        self.ended: Ended | None = None

    async def next(self) -> Tokens | Ended:
        """The next message; waits for it."""
        message = await self._told.get()
        if self._paused and self._told.qsize() <= (self._buffer_tokens or 0) // 2:
            self._paused = False
            self._engine.send(Pause(self.id, paused=False))
        return message

    def cancel(self, reason: Reason) -> None:
        """Ends the request now, unless it has ended; Ended still comes."""
        if self.ended is None and not self._cancelled:
            self._cancelled = True
            self._engine.send(Cancel(self.id, reason, time.monotonic()))

    def tell(self, message: Tokens | Ended) -> None:
        """The engine said something."""
        if isinstance(message, Ended):
            self.ended = message
        self._told.put_nowait(message)
        behind = self._buffer_tokens is not None and self._told.qsize() >= self._buffer_tokens
        if behind and not self._paused and self.ended is None:
            self._paused = True
            self._engine.send(Pause(self.id, paused=True))


class EngineClient:
    """An engine in a process of its own. Make one with `start`, end it with `close`."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.stats: dict[str, Any] = {}
        self._kill = threading.Event()
        self._streams: dict[int, Stream] = {}
        self._taken = Numbers()
        self._own_ids = itertools.count(OWN_IDS)
        self._loop = asyncio.get_running_loop()
        self._ready = self._loop.create_future()
        self._finished: asyncio.Future[Finished] = self._loop.create_future()
        self.died: asyncio.Future[str] = self._loop.create_future()
        self._writer: asyncio.StreamWriter | None = None
        self._log: Path | None = None
        self._hung_up = asyncio.Event()

    @classmethod
    async def start(
        cls,
        payload: Mapping[str, Any],
        device: DeviceKind,
        environment: Mapping[str, str],
        threads: int = 1,
    ) -> EngineClient:
        """Starts the engine of `payload` (as bench.run.run takes), which computes with `threads`
        threads, and waits until its memory is set up. Raises SettingError if it cannot be."""
        client = cls()
        await client._start(payload, device, environment, threads)
        return client

    async def _start(
        self,
        payload: Mapping[str, Any],
        device: DeviceKind,
        environment: Mapping[str, str],
        threads: int,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fragbench-serve-")
        path = str(Path(self._folder.name) / "engine.sock")
        self._out, self._log = Path(payload["out"]), Path(self._folder.name) / LOG
        self._server = await asyncio.start_unix_server(self._on_connection, path, limit=LINE_LIMIT)
        job = Job(
            JOB,
            {**payload, "socket": path},
            environment,
            log=self._log,
            threads=threads,
        )
        self._thread = threading.Thread(target=self._watch, args=(device, job), daemon=True)
        self._thread.start()
        await asyncio.wait([self._ready, self._finished], return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.done():
            finished = self._finished.result()
            await self._release()
            raise SettingError(finished.cause or f"the engine {finished.status} while starting")

    def _watch(self, device: DeviceKind, job: Job) -> None:
        """A launcher belongs to one thread: this one, for the engine's life."""
        try:
            finished = self._launch(device, job)
        except SettingError as error:
            finished = Finished(0, "user_error", cause=str(error))
        except Exception as error:  # whoever waits for the engine hears of everything
            trace = traceback.format_exc()
            finished = Finished(
                0, "crashed", cause=f"it could not be run: {error}", traceback=trace
            )
        self._loop.call_soon_threadsafe(self._on_finished, finished)

    def _launch(self, device: DeviceKind, job: Job) -> Finished:
        with Launcher(device, modules=("torch", "bench.serve.engine_process")) as launcher:
            number = launcher.submit(job)
            while True:
                for event in launcher.wait(timeout=TICK_S):
                    if isinstance(event, Finished):
                        return event
                if self._kill.is_set():
                    self._kill.clear()
                    launcher.terminate(number, grace_s=TICK_S)

    def _on_finished(self, finished: Finished) -> None:
        self._ending = asyncio.ensure_future(self._end(finished))

    async def _end(self, finished: Finished) -> None:
        """The engine's process is gone; what it said last may still be on its way."""
        if self._writer is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hung_up.wait(), LAST_WORDS_S)
        cause = finished.cause or finished.status
        self.died.set_result(cause)
        self._finished.set_result(finished)
        for stream in self._streams.values():
            stream.tell(Ended(stream.id, 0.0, "failed", f"the engine ended: {cause}", 0, 0))
        self._streams.clear()

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._writer = writer
        try:
            with suppress(ConnectionError):
                while line := await reader.readline():
                    self._on_message(decode(line))
        finally:
            writer.close()
            self._hung_up.set()

    def _on_message(self, message: Ready | Tokens | Ended | Stats) -> None:
        match message:
            case Ready():
                self.facts = message.facts
                self._ready.set_result(None)
            case Stats():
                self.stats = message.values
            case Tokens():
                if message.id in self._streams:  # else its end was told when the engine died
                    self._streams[message.id].tell(message)
            case Ended():
                if message.id in self._streams:
                    self._streams.pop(message.id).tell(message)

    @property
    def running(self) -> int:
        """Requests that were submitted and have not ended."""
        return len(self._streams)

    def submit(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        *,
        received_s: float,
        n: int = 1,
        temperature: float | None = None,
        seed: int | None = None,
        expected_tokens: int | None = None,
        request_id: int | None = None,
        kind: str = "",
        cache_salt: str = "",
        buffer_tokens: int | None = None,
    ) -> Stream:
        """Asks for an answer (bench.serve.channel.Ask). A `request_id`, below OWN_IDS, becomes the
        stream's id unless it was used before."""
        assert request_id is None or 0 <= request_id < OWN_IDS, request_id
        number = request_id
        if number is None or not self._taken.take(number):
            number = next(self._own_ids)
        stream = self._streams[number] = Stream(self, number, buffer_tokens)
        self.send(
            Ask(
                number,
                list(prompt),
                max_tokens,
                n=n,
                temperature=temperature,
                seed=seed,
                expected_tokens=expected_tokens,
                kind=kind,
                cache_salt=cache_salt,
                received_s=received_s,
            )
        )
        return stream

    def send(self, message: ToEngine) -> None:
        """Says something to the engine; nobody hears it if it died."""
        if self._writer is not None and not self.died.done():
            self._writer.write(encode(message))

    async def close(self, timeout_s: float = 30.0) -> Finished:
        """Stops the engine, whose files are written then. One that takes longer is killed."""
        self.send(Stop())
        done, _ = await asyncio.wait([self._finished], timeout=timeout_s)
        if not done:
            self._kill.set()
        finished = await self._finished
        await self._release()
        return finished

    async def _release(self) -> None:
        if self._writer is not None:
            self._writer.close()
            await self._hung_up.wait()
        self._server.close()
        await asyncio.to_thread(self._thread.join)
        self._keep_log()
        self._folder.cleanup()

    def _keep_log(self) -> None:
        """What the engine's process printed, beside the run's files if it wrote any."""
        if self._log is not None and self._log.exists() and self._out.is_dir():
            with self._log.open("rb") as printed, (self._out / LOG).open("ab") as kept:
                shutil.copyfileobj(printed, kept)
