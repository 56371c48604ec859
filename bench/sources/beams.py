"""Beam search beside what is served: K and V copied when a beam is forked, freed when it is cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from bench.costs import StepWork
from bench.engine.sequence import Sequence as EngineSequence
from bench.sources.base import Quiet, Served, decodes, written_tokens
from bench.sources.room import Room
from workloads.settings import count, number, refusal
from workloads.streams import stream
from workloads.survivors.base import MAX_BRANCHES, SurvivorProcess
from workloads.survivors.uniform import UniformSurvivors


class _Beam:
    """Memory for the answer's tokens so far, in one or more blocks."""

    def __init__(self) -> None:
        self.blocks: list[int] = []
        self.slots = 0


class _Search:
    """The beams of one request but the first, and who goes on from whom."""

    def __init__(self, width: int, survivors: Iterator[tuple[int, ...]]) -> None:
        self.beams = [_Beam() for _ in range(width - 1)]
        self.survivors = survivors


class Beams(Quiet):
    """A `share` of the requests search with `width` beams. One beam's K and V are the backend's;
    each other one has its answer's tokens in blocks of its own, `page_tokens` more at a time. A
    beam that is cut frees its blocks; the survivor in its place gets one block with a copy of what
    it goes on from. Who survives a step says `survivors` (workloads/survivors/).

    It is there in any run and over any backend, without another request and without the backends'
    own beams (a workload's `branches`), which share blocks or copy in the backend's way. A search
    that is refused memory goes on as one sequence. Requests that have branches of their own are
    left alone.
    """

    def __init__(
        self,
        *,
        share: float = 0.25,
        width: int = 4,
        page_tokens: int = 16,
        survivors: object = None,
    ) -> None:
        fix = "give the part of requests that search, such as 0.25"
        self._share = number("sources.beams.share", share, 0, 1, "(a share)", fix)
        self._survivors = _survivor_process(survivors)
        most = min(MAX_BRANCHES, self._survivors.max_width)
        fix = "give how many go on at a time, such as 4"
        self._width = count("sources.beams.width", width, 2, most, "beams", fix)
        fix = "give the tokens of a block, such as 16"
        self._page_tokens = count(
            "sources.beams.page_tokens", page_tokens, 1, 65_536, "tokens", fix
        )
        self._searches: dict[int, _Search | None] = {}  # None: it does not search
        self._counts = Counter(searches=0, forks=0, given_up=0)

    def start(self, served: Served, room: Room) -> None:
        self._seed, self._room = served.seed, room
        self._token_bytes = served.kv_token_bytes

    def step_begins(self, sequences: Sequence[EngineSequence], work: StepWork) -> None:
        for sequence in sequences:
            if not decodes(sequence):
                continue
            if sequence.id not in self._searches:
                self._searches[sequence.id] = self._begin(sequence)
            search = self._searches[sequence.id]
            tokens = written_tokens(sequence) - sequence.request.prompt_tokens
            if search is not None and not self._advance(search, tokens):
                self._counts["given_up"] += 1
                self._end(search)
                self._searches[sequence.id] = None

    def _begin(self, sequence: EngineSequence) -> _Search | None:
        drawn = stream(self._seed, f"sources/beams/{sequence.id}").random()
        if sequence.width > 1 or drawn >= self._share:
            return None
        self._counts["searches"] += 1
        survivors = self._survivors.steps(self._seed, sequence.id, self._width)
        return _Search(self._width, survivors)

    def _advance(self, search: _Search, tokens: int) -> bool:
        """The survivors of a step have room for `tokens` tokens; False where memory is refused."""
        _, *parents = next(search.survivors)
        for place, (beam, parent) in enumerate(zip(search.beams, parents, strict=True), start=1):
            if parent != place:
                self._counts["forks"] += 1
                self._cut(beam)
            if beam.slots < tokens and not self._grow(beam, tokens):
                return False
        return True

    def _grow(self, beam: _Beam, tokens: int) -> bool:
        """One block for what is missing: a page, or all that a copy needs."""
        more = -(-(tokens - beam.slots) // self._page_tokens) * self._page_tokens
        blocks = self._room.take([more * self._token_bytes])
        if blocks is None:
            return False
        beam.blocks += blocks
        beam.slots += more
        return True

    def _cut(self, beam: _Beam) -> None:
        self._room.give(beam.blocks)
        beam.blocks, beam.slots = [], 0

    def _end(self, search: _Search) -> None:
        for beam in search.beams:
            self._cut(beam)

    def left(self, sequence: int) -> None:
        search = self._searches.pop(sequence, None)
        if search is not None:
            self._end(search)

    def counts(self) -> Mapping[str, int]:
        return dict(self._counts)


def _survivor_process(given: object) -> SurvivorProcess:
    """What was given, the uniform process for None; WorkloadError for anything else."""
    if given is None:
        return UniformSurvivors()
    if not isinstance(given, SurvivorProcess):
        fix = "give a _target_ such as workloads.survivors.uniform.UniformSurvivors"
        raise refusal("sources.beams.survivors", given, "a survivor process", fix)
    return given
