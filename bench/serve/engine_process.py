"""The engine's process behind a server: requests come over a socket, tokens go back over it."""

from __future__ import annotations

import os
import select
import socket
import time
from contextlib import suppress
from functools import partial
from typing import Any

from bench.config import Config, from_container
from bench.engine.engine import Engine
from bench.engine.sequence import Sequence
from bench.engine.text import Text
from bench.engine.wall_clock import Clock, drive
from bench.metrics.status import Status
from bench.run import Run
from bench.serve.channel import (
    Ask,
    Cancel,
    Ended,
    FromEngine,
    Lines,
    Pause,
    Ready,
    Stats,
    Stop,
    Tokens,
    decode,
    encode,
)
from bench.serve.stand_in import StandInAnswers
from workloads.base import Request

STATS_INTERVAL_S = 0.2
CLOSE_S = 5.0
"""That the HTTP process has for taking what was said last."""

PIECE_BYTES = 1 << 20


def run(payload: dict[str, Any]) -> None:
    """Serves what comes over the socket `payload["socket"]` until it is told to stop, and leaves a
    run's files.

    Raises SettingError or BackendError before it says that it is ready, and ServedError if it could
    not go on.
    """
    started = time.monotonic()
    config = from_container(payload["config"])
    answers = StandInAnswers(config.model.vocab_size)
    served = Run(config, payload, started, {"workload": "served"}, answer=answers)
    clock = Clock(config.time_scale)
    served.facts |= {"clock_start_s": clock.start_s, "time_scale": clock.scale}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(payload["socket"])
        traffic = Connection(connection, clock, served, answers)
        traffic.say(Ready(served.facts | _limits(config, served.engine)))
        served.go(partial(drive, traffic=traffic, clock=clock))
        traffic.close()
    if served.facts["status"] == "failed":
        raise ServedError(served.facts["cause"])


class ServedError(RuntimeError):
    """The engine could not go on; its files say so."""


def _limits(config: Config, engine: Engine) -> dict[str, Any]:
    """What a server has to know to refuse what can never run."""
    return {
        "vocab_size": config.model.vocab_size,
        "max_model_len": config.max_model_len,
        "max_num_seqs": engine.max_num_seqs,
        "pid": os.getpid(),
        "block_tokens": engine.memory.backend.block_tokens,
    }


class Connection:
    """A bench.engine.wall_clock.Traffic: the HTTP process."""

    over = False

    def __init__(
        self, connection: socket.socket, clock: Clock, served: Run, answers: StandInAnswers
    ) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._clock = clock
        self._served = served
        self._answers = answers
        self._lines = Lines()
        self._received: list[Ask | Cancel | Pause | Stop] = []
        self._unsent = bytearray()
        self._sequences: dict[int, Sequence] = {}
        self._told: list[FromEngine] = []
        self._stats_at_s = 0.0
        self._at_once = served.engine.answers_at_once
        self._held: dict[int, list[list[int]]] = {}  # tokens of answers that come at once
        self._resumed: set[int] = set()
        served.engine.on_token = self._on_token
        served.engine.on_ends.append(self._on_end)

    def wait(self, until_s: float) -> None:
        """Sends what is to be sent, and takes in what comes."""
        self._flush()
        timeout = max(0.0, until_s - time.monotonic())
        readable, writable, _ = select.select(
            [] if self.over else [self._socket],
            [self._socket] if self._unsent else [],
            [],
            timeout,
        )
        if readable:
            self._receive()
        if writable:
            self._flush()

    def _receive(self) -> None:
        try:
            piece = self._socket.recv(PIECE_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except ConnectionError:
            piece = b""
        if not piece:
            self._received.append(Stop())  # whoever asked is gone
            self.over = True
        self._received += map(decode, self._lines.feed(piece))

    def act(self, engine: Engine, now: float) -> None:
        received, self._received = self._received, []
        now_s = self._clock.monotonic(now)
        for index, message in enumerate(received):
            if isinstance(message, Ask | Cancel) and _came_s(message) > now_s:
                self._received = received[index:]  # all later ones came later
                break
            match message:
                case Ask():
                    self._add(engine, message)
                case Cancel():
                    self._end(engine, message, now)
                case Pause():
                    if message.id in self._sequences:
                        self._sequences[message.id].paused = message.paused
                        if message.paused:
                            self._resumed.add(message.id)
                case Stop():
                    self.over = True
                    for sequence in list(self._sequences.values()):
                        engine.cancel(sequence, now, "shutdown")
        self.tell(now)

    def _add(self, engine: Engine, ask: Ask) -> None:
        tokens = min(ask.max_tokens, ask.expected_tokens or ask.max_tokens)
        sent_s = (ask.received_s - self._clock.start_s) * self._clock.scale
        request = Request(
            ask.id,
            sent_s,
            len(ask.prompt),
            tokens,
            kind=ask.kind,
            cache_salt=ask.cache_salt,
            branches=ask.n,
        )
        sequence = engine.add(request, sent_s, Text(ask.prompt))
        sequence.temperature, sequence.seed = ask.temperature, ask.seed
        if sequence.status is None:  # else it was rejected
            self._sequences[ask.id] = sequence

    def _end(self, engine: Engine, cancel: Cancel, now: float) -> None:
        sequence = self._sequences.get(cancel.id)
        if sequence is None:  # it ended meanwhile
            return
        if cancel.reason == "stop":
            engine.complete(sequence, now)
        else:
            engine.cancel(sequence, now, cancel.reason)

    def _on_token(self, sequence: Sequence, token_ids: list[int] | None) -> None:
        assert token_ids is not None, "a server's tokens have ids"
        if self._at_once:
            self._held.setdefault(sequence.id, []).append(token_ids)
            return
        at_s = self._clock.monotonic(sequence.last_token_s or 0.0)
        resumed = sequence.id in self._resumed
        self._resumed.discard(sequence.id)
        self._told.append(Tokens(sequence.id, at_s, token_ids, resumed))

    def _on_end(self, sequence: Sequence, status: Status, cause: str | None, end_s: float) -> None:
        self._sequences.pop(sequence.id, None)
        self._resumed.discard(sequence.id)
        self._answers.forget(sequence)
        at_s = self._clock.monotonic(end_s)
        held = self._held.pop(sequence.id, [])
        if status is Status.COMPLETED:
            self._told += (Tokens(sequence.id, at_s, token_ids) for token_ids in held)
        if status is Status.UNFINISHED:
            cause = self._served.facts["cause"]
        admitted_s = sequence.admitted_s
        self._told.append(
            Ended(
                sequence.id,
                at_s,
                status.value,
                cause,
                sequence.generated,
                sequence.cached_tokens,
                None if admitted_s is None else self._clock.monotonic(admitted_s),
            )
        )

    def tell(self, now: float) -> None:
        for message in self._told:
            self.say(message)
        self._told.clear()
        if now >= self._stats_at_s:
            self._stats_at_s = now + STATS_INTERVAL_S * self._clock.scale
            self.say(Stats(self._served.gauges()))
        self._flush()

    def say(self, message: FromEngine) -> None:
        """Sends a message when the socket takes it."""
        self._unsent += encode(message)

    def close(self) -> None:
        """Sends all that is left; who does not take it is gone or hangs."""
        self.tell(self._clock.now())
        self._socket.settimeout(CLOSE_S)
        with suppress(OSError):
            self._socket.sendall(self._unsent)

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._unsent) if self._unsent else 0
        except (BlockingIOError, InterruptedError):
            return
        except ConnectionError:
            sent = len(self._unsent)
        del self._unsent[:sent]


def _came_s(message: Ask | Cancel) -> float:
    return message.received_s if isinstance(message, Ask) else message.at_s
