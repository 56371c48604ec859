"""The contract between traffic and the harness."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol


class WorkloadError(ValueError):
    """A workload setting or a trace that cannot be used; the message is one sentence for a user."""


class Source(Enum):
    """Where tokens of a prompt come from: a stream shared by id, or a request's own words in its
    prompt, or its answer."""

    SHARED = "shared"
    PROMPT = "prompt"
    OUTPUT = "output"


class Segment(NamedTuple):
    """Tokens of a prompt that are found elsewhere too: the first `tokens` of the stream that
    `source` and `id` name (of a request: its id)."""

    source: Source
    id: int
    tokens: int


Survivors = Callable[[], Iterator[Sequence[int]]]
"""Starts a beam search: for each step after the first, the beam that each survivor goes on from."""


class Leave(NamedTuple):
    """When a client closes its connection: `after_s` seconds after it sent or with `after_tokens`
    tokens of its longest answer, whichever comes first; None is never. `kind` is what it is called
    in results."""

    kind: str
    after_s: float | None = None
    after_tokens: int | None = None


class Client(NamedTuple):
    """What a request's client does beside waiting: it leaves, or reads `tokens_per_s` of each
    answer only."""

    leave: Leave | None = None
    tokens_per_s: float | None = None


PATIENT = Client()
"""Reads all, as fast as it comes."""


class ClosedLoop(NamedTuple):
    """`users` that each send a session when their last one has ended, and a pause has passed. User
    n starts n x `stagger_s` after the first one; nothing is started at `until_s` or later."""

    users: int
    stagger_s: float
    until_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Request:
    """What one client asks, and the output length that it will turn out to have.

    `scheduled_s` counts from the start of the workload; in a closed loop, from the end of its
    user's last session. `output_tokens` is the true length: only
    the oracle and pow2 policies may read it before the request ends. The prompt starts with the
    segments of `prefix`; the rest is the request's own (workloads/tokens.py makes token ids).
    Prefixes are shared only between requests of one `cache_salt` (a tenant's, or an adapter's
    name).

    `branches` answers of `output_tokens` each come out of the prompt: samples, or beams where
    there are `survivors`. `next_turn` is sent when this request has ended, however it did; its
    `scheduled_s` counts from then.
    """

    request_id: int
    scheduled_s: float
    prompt_tokens: int
    output_tokens: int
    kind: str = ""
    prefix: tuple[Segment, ...] = ()
    cache_salt: str = ""
    branches: int = 1
    survivors: Survivors | None = None
    next_turn: Request | None = None
    client: Client = PATIENT


class Workload(Protocol):
    """A source of requests. The same seed gives the same requests on every machine."""

    name: str
    closed_loop: ClosedLoop | None
    """None for an open loop, where each request has a time of its own."""

    def requests(self, seed: int) -> Iterator[Request]:
        """Requests in order of `scheduled_s` (in a closed loop: in that of their start), those of
        later turns inside the ones before them, each with an id of its own. Raises
        WorkloadError."""
        ...

    def trace_facts(self) -> dict[str, dict[str, Any]]:
        """What was read of each recorded file that the workload draws from, and what was left
        out, by the setting that names the file; empty where there is none."""
        ...
