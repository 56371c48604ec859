"""A request on its way through the engine."""

from __future__ import annotations

from backends.base import Demand, TokenIds
from bench.engine.lineage import Lineage
from bench.engine.text import Text
from bench.metrics.status import Status
from workloads.base import Request


class Sequence:
    """Progress of one request, in tokens and seconds.

    `known` tokens have ids (the prompt and what was generated), `computed` of them have K and V,
    and `slots` is the room held. A sequence decodes when one known token is left to compute.
    `chunk` is what the current step computes, 0 between steps. A `paused` one keeps its memory and
    waits for its client. `temperature` and `seed` are its own where they are not None. All token
    counts but `slots` are of each branch: one at first, as many as the request asks for after
    `lineage` says so.
    """

    __slots__ = (
        "admitted_s",
        "branches",
        "cached_tokens",
        "chunk",
        "computed",
        "demand",
        "first_step",
        "first_token_s",
        "gaps",
        "generated",
        "known",
        "last_step",
        "last_token_s",
        "lineage",
        "paused",
        "preemptions",
        "request",
        "seed",
        "sent_s",
        "slots",
        "status",
        "temperature",
        "text",
    )

    def __init__(self, request: Request, sent_s: float, token_ids: TokenIds | None = None) -> None:
        self.request = request
        self.demand = Demand(
            request.prompt_tokens,
            request.output_tokens,
            token_ids,
            request.cache_salt,
            request.branches,
        )
        self.text = token_ids if isinstance(token_ids, Text) else None
        self.sent_s = sent_s
        self.known = request.prompt_tokens
        self.computed = 0
        self.generated = 0
        self.slots = 0
        self.chunk = 0
        self.branches = 1
        self.lineage = Lineage(request) if request.branches > 1 else None
        self.status: Status | None = None  # once it has ended
        self.paused = False
        self.temperature: float | None = None
        self.seed: int | None = None
        self.preemptions = 0
        self.cached_tokens = 0  # found in the cache at the first admission
        self.admitted_s: float | None = None
        self.first_token_s: float | None = None
        self.last_token_s: float | None = None
        self.first_step = -2  # of the unbroken run of steps that gave a token each
        self.last_step = -2  # that gave a token (-1 would be the step before the first)
        self.gaps: list[tuple[int, int] | float] = []

    @property
    def id(self) -> int:
        return self.request.request_id

    @property
    def width(self) -> int:
        """Branches that the request asks for."""
        return self.request.branches

    @property
    def tokens(self) -> int:
        """Live tokens of all branches, those that they share counted for each."""
        return self.computed * self.branches

    @property
    def uncomputed(self) -> int:
        """Tokens to compute before the sequence forks, if it will, or to its end."""
        known = self.known
        if self.lineage is not None and self.computed < self.lineage.trunk:
            known = min(known, self.lineage.trunk)
        return known - self.computed

    @property
    def oldest_step(self) -> int:
        """The first one that gave a token, negative before there was one."""
        first = self.gaps[0] if self.gaps else None
        return first[0] if isinstance(first, tuple) else self.first_step

    def arrived_at_once(self, end_s: float) -> None:
        """The client got the whole answer at `end_s`: there are no gaps between its tokens."""
        self.first_token_s = self.last_token_s = end_s
        self.first_step = self.last_step
        self.gaps.clear()

    def restart(self) -> None:
        """Its memory is gone: what is known is computed again."""
        self.computed = self.chunk = 0
        self.branches = 1
        self.preemptions += 1
        if self.lineage is not None:
            self.lineage.parents = None
