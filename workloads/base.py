"""The contract between traffic and the harness."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


class WorkloadError(ValueError):
    """A workload setting or a trace that cannot be used; the message is one sentence for a user."""


@dataclass(frozen=True, slots=True)
class Request:
    """What one client asks, and the output length that it will turn out to have.

    `scheduled_s` counts from the start of the workload. `output_tokens` is the true length: only
    the oracle and pow2 policies may read it before the request ends. Two requests share the first
    `prefix_block_tokens` tokens for each leading id that their `prefix_ids` have in common; with
    no ids the prompt is unique to the request (workloads/tokens.py makes its token ids). Prefixes
    are shared only between requests of one `cache_salt` (a tenant's, or an adapter's name).
    """

    request_id: int
    scheduled_s: float
    prompt_tokens: int
    output_tokens: int
    kind: str = ""
    prefix_ids: tuple[int, ...] = ()
    prefix_block_tokens: int = 0
    cache_salt: str = ""


class Workload(Protocol):
    """A source of requests. The same seed gives the same requests on every machine."""

    name: str

    def requests(self, seed: int) -> Iterator[Request]:
        """Requests in order of `scheduled_s`, numbered from 0. Raises WorkloadError."""
        ...
