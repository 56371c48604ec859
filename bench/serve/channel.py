"""What the HTTP process and the engine's process say to each other: JSON lines over a socket.

Times are seconds of the machine's monotonic clock, the same in all of its processes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

LINE_LIMIT = 64 << 20
"""Bytes of the longest message: a prompt of a few million tokens."""

OWN_IDS = 1 << 40
"""Where the numbers of requests start that no load generator gave one."""

Reason = Literal["disconnect", "timeout", "shutdown", "stop"]
"""Why a request ends before its last token. `stop` (a stop word, an end-of-sequence token)
completes it; the others cancel it."""


@dataclass(frozen=True, slots=True)
class Ask:
    """To the engine: compute `n` answers of at most `max_tokens` tokens after `prompt`.

    `id` names the request in later messages and in the run's files. `expected_tokens` is the
    answers' true length, which only the oracle and pow2 policies may read, where a load generator
    told it. `received_s` is when the request was read.
    """

    id: int
    prompt: list[int]
    max_tokens: int
    n: int = 1
    temperature: float | None = None
    seed: int | None = None
    expected_tokens: int | None = None
    kind: str = ""
    cache_salt: str = ""
    received_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Cancel:
    """To the engine: the request ends now, which is `at_s`."""

    id: int
    reason: Reason
    at_s: float


@dataclass(frozen=True, slots=True)
class Pause:
    """To the engine: the request's reader is behind (or no longer): it keeps its memory and gets
    no tokens while `paused`."""

    id: int
    paused: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """To the engine: end, and write what was recorded."""


@dataclass(frozen=True, slots=True)
class Ready:
    """From the engine: memory is set up. `facts` is what summary.json will say of it."""

    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tokens:
    """From the engine: at `at_s` the request got a token in each of its answers. `resumed`: its
    reader kept it waiting since the token before."""

    id: int
    at_s: float
    token_ids: list[int]
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """From the engine: the request holds no memory since `at_s`. `status` is a
    bench.metrics.status.Status; `cause` says why it failed or was rejected, or why the engine
    ended. `admitted_s` is when it left the queue first, None if it never did."""

    id: int
    at_s: float
    status: str
    cause: str | None
    generated: int
    cached_tokens: int
    admitted_s: float | None = None


@dataclass(frozen=True, slots=True)
class Stats:
    """From the engine, a few times a second: gauges, counters and counts by size, by name."""

    values: dict[str, Any]


ToEngine = Ask | Cancel | Pause | Stop
FromEngine = Ready | Tokens | Ended | Stats
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Ask, Cancel, Pause, Stop, Ready, Tokens, Ended, Stats)
}


def encode(message: ToEngine | FromEngine) -> bytes:
    """One line."""
    fields = {"": type(message).__name__} | asdict(message)
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Any:
    """The message of a line."""
    fields = json.loads(line)
    return _KINDS[fields.pop("")](**fields)


class Lines:
    """Whole lines out of pieces as they arrive."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The lines that this piece completes."""
        self._rest += piece
        *lines, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        yield from map(bytes, lines)
