"""The engine behind a server, in its own process, as the HTTP side sees it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pytest

from bench.cells import cell_job
from bench.device.launcher import Finished
from bench.errors import SettingError
from bench.experiment import compose_cells
from bench.serve import engine_client
from bench.serve.channel import OWN_IDS, Ended, Ready, Tokens, encode
from bench.serve.engine_client import EngineClient, Stream
from tests.virtual_gpu import skip_without_virtual_gpu

BACKENDS = ["contiguous", "bucketed", "vmm", "paged", "paged_prefix", "paged_radix"]
VIRTUAL = ("device=virtual", "model=llama3_8b", "gpu=a100_80gb", "kv_budget=4GiB")
ON_CPU = ("device=cpu", "model=tiny", "max_model_len=1024", "kv_budget=256MiB")


@asynccontextmanager
async def served(
    out: Path, *overrides: str, time_scale: float = 1.0
) -> AsyncIterator[EngineClient]:
    (cell,), _ = compose_cells(
        [*overrides, f"time_scale={time_scale}", f"out={out}"], ["fragbench", "serve"]
    )
    job = cell_job(cell, None)
    client = await EngineClient.start(job.payload, cell.device, job.environment)
    try:
        yield client
    finally:
        finished = await client.close()
    assert finished.status == "ok", finished.traceback or finished.cause


async def read(stream: Stream, leave_after: int | None = None) -> tuple[list[list[int]], Ended]:
    """All tokens and the end; the client leaves after so many steps."""
    tokens: list[list[int]] = []
    while True:
        message = await stream.next()
        if isinstance(message, Ended):
            return tokens, message
        tokens.append(message.token_ids)
        if len(tokens) == leave_after:
            stream.cancel("disconnect")


def ask(client: EngineClient, prompt_tokens: int = 100, max_tokens: int = 20) -> Stream:
    return client.submit(range(prompt_tokens), max_tokens, received_s=time.monotonic())


@pytest.mark.parametrize("backend", BACKENDS)
def test_whoever_leaves_is_cancelled_and_all_memory_comes_back(
    backend: str, tmp_path: Path
) -> None:
    skip_without_virtual_gpu()

    async def run() -> None:
        async with served(
            tmp_path / "run", *VIRTUAL, f"backend={backend}", time_scale=10.0
        ) as client:
            streams = [ask(client, 50 + number) for number in range(30)]
            leaving = [None if number % 3 else 1 + number % 7 for number in range(30)]
            ends = await asyncio.gather(*map(read, streams, leaving))
            statuses = [end.status for _, end in ends]
            assert statuses == ["completed" if left is None else "cancelled" for left in leaving]
            for (tokens, end), left in zip(ends, leaving, strict=True):
                assert len(tokens) == end.generated
                assert left is None or left <= end.generated
            assert client.running == 0
            await asyncio.sleep(0.5)
            assert client.stats["held_bytes"] == 0

    asyncio.run(run())
    requests = pd.read_parquet(tmp_path / "run" / "requests")
    assert requests["status"].value_counts().to_dict() == {"completed": 20, "cancelled": 10}
    assert set(requests["cause"].dropna()) == {"disconnect"}
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    assert summary["requests"]["sent"] == 30


def test_a_slow_reader_keeps_its_memory_and_gets_every_token(tmp_path: Path) -> None:
    async def run() -> None:
        async with served(tmp_path / "run", *ON_CPU, "backend=paged") as client:
            stream = client.submit(range(64), 40, received_s=time.monotonic(), buffer_tokens=4)
            await stream.next()
            await asyncio.sleep(1.0)  # long enough for all 40, were it not held up
            assert client.stats["held_bytes"]
            assert client.stats["output_tokens"] < 40
            tokens, end = await read(stream)
            assert (len(tokens) + 1, end.status) == (40, "completed")

    asyncio.run(run())


def test_computed_answers_are_the_same_alone_and_in_a_batch(tmp_path: Path) -> None:
    async def run() -> None:
        async with served(tmp_path / "run", *ON_CPU, "backend=paged_prefix") as client:
            alone, _ = await read(ask(client))
            together = await asyncio.gather(*(read(ask(client)) for _ in range(4)))
            assert all(tokens == alone for tokens, _ in together)
            drawn = [
                client.submit(
                    range(100), 20, received_s=time.monotonic(), temperature=2.0, seed=seed, n=2
                )
                for seed in (1, 1, 2)
            ]
            (first, _), (again, _), (other, _) = await asyncio.gather(*map(read, drawn))
            assert first == again != other
            assert any(one != two for one, two in first)

    asyncio.run(run())


def test_what_can_never_run_is_rejected_with_its_cause(tmp_path: Path) -> None:
    async def run() -> None:
        async with served(tmp_path / "run", *ON_CPU, "backend=paged") as client:
            tokens, end = await read(ask(client, prompt_tokens=1000, max_tokens=100))
            assert (tokens, end.status) == ([], "rejected")
            assert "1100 tokens exceed max_model_len=1024" in str(end.cause)

    asyncio.run(run())


def test_a_stop_word_completes_a_request_early(tmp_path: Path) -> None:
    async def run() -> None:
        async with served(tmp_path / "run", *ON_CPU, "backend=vmm") as client:
            stream = ask(client, max_tokens=500)
            assert isinstance(await stream.next(), Tokens)
            stream.cancel("stop")
            _, end = await read(stream)
            assert end.status == "completed"
            assert 1 <= end.generated < 500

    asyncio.run(run())


def test_shutdown_ends_what_runs(tmp_path: Path) -> None:
    async def run() -> Stream:
        async with served(tmp_path / "run", *ON_CPU, "backend=paged") as client:
            stream = ask(client, max_tokens=900)
            await stream.next()
        return stream

    stream = asyncio.run(run())
    assert stream.ended is not None
    assert (stream.ended.status, stream.ended.cause) == ("cancelled", "shutdown")


def test_settings_that_cannot_be_used_are_said_before_anything_is_served(tmp_path: Path) -> None:
    async def run() -> None:
        async with served(tmp_path / "run", *ON_CPU, "backend=paged", "backend.block_size=12"):
            pass

    with pytest.raises(SettingError, match="block_size=12"):
        asyncio.run(run())


def test_an_engine_that_dies_fails_what_runs(tmp_path: Path) -> None:
    async def run() -> None:
        (cell,), _ = compose_cells([*ON_CPU, "backend=paged", f"out={tmp_path / 'run'}"], ["x"])
        job = cell_job(cell, None)
        client = await EngineClient.start(job.payload, cell.device, job.environment)
        stream = ask(client, max_tokens=900)
        await stream.next()
        os.kill(client.facts["pid"], signal.SIGKILL)
        _, end = await read(stream)
        assert end.status == "failed"
        assert "SIGKILL" in await client.died
        await client.close()

    asyncio.run(run())


def test_answers_of_a_static_batch_come_at_once_when_it_ends(tmp_path: Path) -> None:
    skip_without_virtual_gpu()

    async def run() -> None:
        static = ("backend=contiguous", "engine.batching=static", "engine.prefill=whole")
        async with served(tmp_path / "run", *VIRTUAL, *static, time_scale=10.0) as client:
            first = ask(client, max_tokens=3)  # alone, while the next two come together
            batch = [ask(client, max_tokens=5), ask(client, max_tokens=40)]
            for streams, lengths in (([first], [3]), (batch, [5, 40])):
                told = [[await stream.next()] for stream in streams]
                for stream, messages in zip(streams, told, strict=True):
                    while not isinstance(messages[-1], Ended):
                        messages.append(await stream.next())
                assert [len(messages) - 1 for messages in told] == lengths
                assert len({message.at_s for messages in told for message in messages}) == 1

    asyncio.run(run())


def test_records_are_written_while_the_engine_is_idle(tmp_path: Path) -> None:
    """A killed server loses a few seconds of them, however few steps there were."""

    async def run() -> None:
        async with served(tmp_path / "run", *ON_CPU, "backend=paged") as client:
            await read(ask(client, max_tokens=3))
            async with asyncio.timeout(60):
                while not list((tmp_path / "run" / "requests").glob("*.parquet")):
                    await asyncio.sleep(0.1)
            assert len(pd.read_parquet(tmp_path / "run" / "requests")) == 1

    asyncio.run(run())
    assert (tmp_path / "run" / "run.log").exists()


@pytest.mark.parametrize(
    ("error", "words"),
    [(SettingError("no compiler."), "^no compiler.$"), (OSError("no forks"), "no forks")],
)
def test_a_launcher_that_cannot_start_is_said(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(*what: object, **more: object) -> None:
        raise error

    monkeypatch.setattr(engine_client, "Launcher", fails)

    async def run() -> None:
        async with asyncio.timeout(30):
            await EngineClient.start({"out": str(tmp_path / "run")}, "cpu", {})

    with pytest.raises(SettingError, match=words):
        asyncio.run(run())


class NoLauncher:
    """Of an engine that the test itself is: it ends when it is told to."""

    ends: ClassVar[bool] = False
    connection: ClassVar[socket.socket]

    def __init__(self, *what: object, **more: object) -> None:
        pass

    def __enter__(self) -> NoLauncher:
        return self

    def __exit__(self, *what: object) -> None:
        pass

    def submit(self, job: Any) -> int:
        NoLauncher.connection = socket.socket(socket.AF_UNIX)
        NoLauncher.connection.connect(job.payload["socket"])
        NoLauncher.connection.sendall(encode(Ready({})))
        return 1

    def wait(self, timeout: float) -> list[Finished]:
        time.sleep(0.01)
        return [Finished(1, "killed", cause="killed by SIGKILL")] if NoLauncher.ends else []


def test_an_engine_that_is_gone_is_heard_to_its_last_word(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """That its process ended may be known before what it said has been read, and what it says of
    requests that nobody knows is nothing."""
    monkeypatch.setattr(engine_client, "Launcher", NoLauncher)
    monkeypatch.setattr(NoLauncher, "ends", False)

    async def run() -> None:
        client = await EngineClient.start({"out": str(tmp_path / "run")}, "cpu", {})
        done, cut = ask(client), ask(client)
        NoLauncher.ends = True
        time.sleep(0.1)  # the loop stands still: it hears of the end first
        said = [Tokens(99, 1.0, [5]), Ended(99, 1.0, "completed", None, 1, 0),
                Tokens(done.id, 1.0, [5]), Ended(done.id, 1.0, "completed", None, 1, 0),
                Tokens(cut.id, 1.0, [6])]  # fmt: skip
        NoLauncher.connection.sendall(b"".join(map(encode, said)))
        NoLauncher.connection.close()
        async with asyncio.timeout(30):
            assert await read(done) == ([[5]], said[3])
            tokens, end = await read(cut)
            assert (tokens, end.status) == ([[6]], "failed")
            assert "SIGKILL" in str(end.cause)
            assert (await client.close()).status == "killed"

    asyncio.run(run())


def test_a_number_that_was_used_is_replaced_by_one_of_the_servers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(engine_client, "Launcher", NoLauncher)
    monkeypatch.setattr(NoLauncher, "ends", False)

    async def run() -> None:
        client = await EngineClient.start({"out": str(tmp_path / "run")}, "cpu", {})
        streams = [
            client.submit([1], 2, received_s=0.0, request_id=number)
            for number in (5, 5, OWN_IDS - 1, None)
        ]
        assert [stream.id for stream in streams] == [5, OWN_IDS, OWN_IDS - 1, OWN_IDS + 1]
        with pytest.raises(AssertionError):
            client.submit([1], 2, received_s=0.0, request_id=OWN_IDS)
        NoLauncher.ends = True
        NoLauncher.connection.close()
        await client.close()

    asyncio.run(run())
