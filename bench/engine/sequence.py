"""A request on its way through the engine."""

from __future__ import annotations

from typing import Protocol

from backends.base import Demand, TokenIds
from bench.engine.lineage import Lineage
from bench.engine.text import Text
from bench.metrics.status import Status
from workloads.base import Request


class Lockstep(Protocol):
    """Sequences that all compute and give a token in each step (bench/engine/lockstep.py): how many
    steps they took, the last one's number and end, and before which place in the order of admission
    they have a token to compute in the current one."""

    steps: int
    last_step: int
    end_s: float
    planned_before: float

    def part(self, sequence: Sequence) -> None:
        """Has a member go on by itself."""
        ...


class Sequence:
    """Progress of one request, in tokens and seconds.

    `known` tokens have ids (the prompt and what was generated), `computed` of them have K and V,
    and `slots` is the room held. A sequence decodes when one known token is left to compute.
    `chunk` is what the current step computes, 0 between steps. A `paused` one keeps its memory and
    waits for its client; of a `followed` one somebody hears of each token. `temperature` and `seed`
    are its own where they are not None. All token counts but `slots` are of each branch: one at
    first, as many as the request asks for after `lineage` says so.

    In `lockstep` with others it is as far as it was when it joined them and the steps since.
    """

    __slots__ = (
        "_chunk",
        "_computed",
        "_generated",
        "_last_step",
        "_last_token_s",
        "_paused",
        "admitted_s",
        "branches",
        "cached_tokens",
        "demand",
        "due",
        "first_step",
        "first_token_s",
        "followed",
        "gaps",
        "joined",
        "lineage",
        "lockstep",
        "place",
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
        self._computed = 0
        self._generated = 0
        self._chunk = 0
        self.slots = 0
        self.branches = 1
        self.lineage = Lineage(request) if request.branches > 1 else None
        self.status: Status | None = None  # once it has ended
        self._paused = False
        self.followed = False
        self.temperature: float | None = None
        self.seed: int | None = None
        self.preemptions = 0
        self.cached_tokens = 0  # found in the cache at the first admission
        self.admitted_s: float | None = None
        self.first_token_s: float | None = None
        self._last_token_s: float | None = None
        self.first_step = -2  # of the unbroken run of steps that gave a token each
        self._last_step = -2  # that gave a token (-1 would be the step before the first)
        self.gaps: list[tuple[int, int] | float] = []
        self.lockstep: Lockstep | None = None
        self.place = -1  # in the order of admission
        self.joined = self.due = 0  # steps of the lockstep when it joined, and when it leaves

    @property
    def id(self) -> int:
        return self.request.request_id

    @property
    def computed(self) -> int:
        lockstep = self.lockstep
        return self._computed if lockstep is None else self._computed + lockstep.steps - self.joined

    @property
    def generated(self) -> int:
        return self._generated if self.lockstep is None else self._generated + self._together

    @property
    def known(self) -> int:
        return self.request.prompt_tokens + self.generated

    @property
    def _together(self) -> int:
        """Tokens computed, and given, since it joined others."""
        return 0 if self.lockstep is None else self.lockstep.steps - self.joined

    @property
    def chunk(self) -> int:
        lockstep = self.lockstep
        return self._chunk if lockstep is None else self.place < lockstep.planned_before

    @chunk.setter
    def chunk(self, tokens: int) -> None:
        self._chunk = tokens

    @property
    def last_step(self) -> int:
        """The last one that gave a token, negative before there was one."""
        return self._last_step if self.lockstep is None else self.lockstep.last_step

    @property
    def last_token_s(self) -> float | None:
        return self._last_token_s if self.lockstep is None else self.lockstep.end_s

    @property
    def paused(self) -> bool:
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._paused = paused
        if paused and self.lockstep is not None:
            self.lockstep.part(self)

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

    @property
    def tokens_left(self) -> int:
        """To be generated."""
        return self.request.output_tokens - self.generated

    def found(self, tokens: int) -> None:
        """So many tokens at the start have K and V without being computed."""
        self._computed = tokens

    def compute_chunk(self) -> bool:
        """The step's chunk has K and V now. Whether a token comes out of it."""
        self._computed += self._chunk
        self._chunk = 0
        return self._computed == self.known

    def give_token(self, step: int, end_s: float) -> None:
        """A token came out of a step, in each branch."""
        self._generated += 1
        self._last_step, self._last_token_s = step, end_s

    def join(self, lockstep: Lockstep) -> None:
        """From the next step on it only decodes, as the others there do."""
        self.lockstep, self.joined = lockstep, lockstep.steps

    def leave(self) -> None:
        """It goes on by itself, from where it is."""
        lockstep = self.lockstep
        assert lockstep is not None
        self._last_step, self._last_token_s = self.last_step, self.last_token_s
        self._chunk, taken, self.lockstep = int(self.chunk), self._together, None
        self._computed += taken
        self._generated += taken

    def arrived_at_once(self, end_s: float) -> None:
        """The client got the whole answer at `end_s`: there are no gaps between its tokens."""
        self.first_token_s = self._last_token_s = end_s
        self.first_step = self._last_step
        self.gaps.clear()

    def restart(self) -> None:
        """Its memory is gone: what is known is computed again."""
        self._computed = self._chunk = 0
        self.branches = 1
        self.preemptions += 1
        if self.lineage is not None:
            self.lineage.parents = None
