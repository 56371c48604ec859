"""`fragbench serve`: an engine behind OpenAI's API, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, NamedTuple

from bench.cells import Cell, cell_environment, cell_threads, cores
from bench.config import from_container
from bench.errors import SettingError
from bench.experiment import compose_cells, parse_options
from bench.serve import event_loop
from bench.serve.api import Served
from bench.serve.app import App
from bench.serve.engine_client import EngineClient
from bench.serve.listener import Listener, address, bind
from bench.serve.service import Service
from bench.serve.settings import KEY_VARIABLE, ServeSettings, api_key
from bench.serve.tokenizer import end_of_sequence_ids, make_tokenizer
from bench.setting_files import SECRET

FAILED = 1
SETTLE_S = 5.0
CLOSE_S, STOP_S = 1.0, 30.0
SIGNALS = (signal.SIGINT, signal.SIGTERM)
OWN = tuple(field.name for field in fields(ServeSettings))

USAGE = f"""\
usage: fragbench serve [group=option ...] [key=value ...]

An OpenAI-compatible server over one of fragbench's engines: /v1/completions, /v1/chat/completions,
/v1/models, /health and /metrics. What it did is left in out=DIR as `fragbench run` leaves it.

  fragbench serve backend=paged model=tiny device=cpu port=8000
  fragbench serve backend=contiguous backend.reserve=pow2 gpu=h100_80gb kv_budget=12GiB

Settings of the experiment are those of `fragbench run --help` (the workload is not used). The
server's own, as key=value or serve.key=value: {", ".join(OWN)};
`fragbench serve --cfg job -p serve` shows them with their values. The API key is better given in
{KEY_VARIABLE}, where other users of the machine do not see it.
"""

SERVES_ITSELF = (
    "engine=vllm has a server of its own: use `fragbench exec -- vllm serve MODEL` on the virtual "
    "GPU, or `vllm serve MODEL` on a card, and send it traffic with `fragbench load`."
)


def main(argv: list[str]) -> int:
    """Serves until SIGINT or SIGTERM; 0 then, 1 if the engine died. Raises SettingError."""
    if parse_options("serve", argv).help:
        print(USAGE, end="")
        return 0
    if "engine=vllm" in argv:  # before it is looked for
        raise SettingError(SERVES_ITSELF)
    cells, _ = compose_cells([own(argument) for argument in argv], ["fragbench", "serve", *argv])
    if not cells:  # something was shown
        return 0
    if len(cells) > 1:
        raise SettingError("fragbench serve serves one engine: give one value for each setting.")
    if cells[0].config["engine"]["name"] == "vllm":
        raise SettingError(SERVES_ITSELF)
    return event_loop.run(serve_cell(cells[0]))


def own(argument: str) -> str:
    """The server's own settings may be given without `serve.`."""
    key = argument.partition("=")[0]
    return f"serve.{argument}" if key in OWN else argument


async def serve_cell(cell: Cell, say: Callable[[str], None] = print) -> int:
    """Serves a checked cell; `say` hears once, when it listens. Raises SettingError."""
    config = from_container(cell.config)
    key = api_key(config.serve)
    settings, checkpoint = config.serve, config.model.checkpoint
    tokenizer = make_tokenizer(settings.tokenizer, checkpoint, config.model.vocab_size)
    computes = cell.device != "virtual"  # else an end-of-sequence id is only a number
    eos_ids = end_of_sequence_ids(checkpoint) if computes else frozenset[int]()
    with bind(settings.host, settings.port) as listening, _signals() as told:
        threads = cell_threads(cell, cores() - 1)  # one core is for HTTP
        engine = await EngineClient.start(
            _payload(cell), cell.device, cell_environment(cell), threads
        )
        try:
            name = settings.served_model_name or config.model.name
            facts = engine.facts
            served = Served(name, facts["vocab_size"], facts["max_model_len"], tokenizer)
            service = Service(engine, settings, served, eos_ids)
            listener = Listener(App(service, key))
            await listener.start(listening)
            say(f"fragbench serves {facts['backend']} ({name}, device={cell.device}) on "
                f"{address(listening)}")  # fmt: skip
            await _until_told(service, listener, engine, told)
        finally:
            finished = await engine.close(CLOSE_S if told.at_once.is_set() else STOP_S)
    if finished.status == "ok":
        return 0
    print(f"fragbench: the engine ended: {finished.cause or finished.status}", file=sys.stderr)
    return FAILED


class _Told(NamedTuple):
    """Somebody asked the server to stop, and asked again."""

    stop: asyncio.Event
    at_once: asyncio.Event

    def hear(self) -> None:
        (self.at_once if self.stop.is_set() else self.stop).set()


async def _until_told(
    service: Service, listener: Listener, engine: EngineClient, told: _Told
) -> None:
    stopping = asyncio.ensure_future(told.stop.wait())
    either: list[asyncio.Future[Any]] = [stopping, engine.died]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    await service.drain(0.0 if engine.died.done() else service.settings.drain_s, told.at_once)
    await service.settle(SETTLE_S, told.at_once)
    await listener.close(CLOSE_S)


@contextlib.contextmanager
def _signals() -> Iterator[_Told]:
    told = _Told(asyncio.Event(), asyncio.Event())
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, told.hear)
    try:
        yield told
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def _payload(cell: Cell) -> dict[str, Any]:
    """What the engine's process is given; the key is none of its business."""
    config = {**cell.config, "serve": {**cell.config["serve"], SECRET: None}}
    return {
        "config": config,
        "out": str(cell.out),
        "device": cell.device,
        "command": cell.command,
    }
