"""Generated traffic: kinds of request in given shares, each with lengths of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals.base import NS_PER_S, Arrivals
from workloads.base import Request, Segment, Survivors
from workloads.lengths.base import Lengths, Pairs, check_lengths
from workloads.schedule import Schedule
from workloads.settings import MAX_TOKENS, count, number, refusal, text
from workloads.shared_texts import MAX_TEXTS, shared_segment
from workloads.streams import stream
from workloads.survivors.base import MAX_BRANCHES, SurvivorProcess

_SHARES_TOLERANCE = 1e-6

Tokens = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """One kind of request: its share of all requests (0 to 1) and its lengths, drawn from `prompt`
    and `output` independently or from `pairs` together.

    Each prompt starts with `prefix_tokens` shared tokens, put before what was drawn, and with the
    leading `prefix_share` (0 to 1, rounded down to whole tokens) of what was drawn: with one of
    `prefixes` texts, chosen uniformly. `branches` samples come out of each prompt; with
    `survivors` they are beams.
    """

    prompt: Lengths | None = None
    output: Lengths | None = None
    pairs: Pairs | None = None
    share: float = 1.0
    prefix_tokens: int = 0
    prefix_share: float = 0.0
    prefixes: int = 1
    branches: int = 1
    survivors: SurvivorProcess | None = None

    @property
    def longest_prompt_tokens(self) -> int:
        drawn = self.pairs.longest_prompt_tokens if self.pairs else _lengths(self)[0].max_tokens
        return self.prefix_tokens + drawn


class MixedWorkload:
    """Requests of several kinds, drawn independently, the first at 0 s.

    Starts and ends as workloads/schedule.py says. `max_total_tokens` bounds prompt + output: the
    output is cut to fit.

    Arrivals, the choice of kinds and each kind's prompts, outputs and prefixes draw from streams
    of their own: changing one leaves the others' numbers alone, and the n-th request of a kind has
    the same lengths whatever the shares. Raises WorkloadError for a setting that cannot be used.
    """

    def __init__(
        self,
        *,
        kinds: Mapping[str, Kind],
        arrivals: Arrivals,
        rate_rps: float | None = None,
        num_requests: int | None = None,
        duration_s: float | None = None,
        max_total_tokens: int | None = None,
        name: str = "mixed",
    ) -> None:
        self.name = text("workload.name", name, "a name", "give one such as mixed")
        self._schedule = Schedule(
            arrivals=arrivals,
            rate_rps=rate_rps,
            num_requests=num_requests,
            duration_s=duration_s,
        )
        self._kinds = _check_kinds(kinds)
        self._max_total_tokens = _check_max_total_tokens(max_total_tokens, self._kinds)

    def requests(self, seed: int) -> Iterator[Request]:
        """The requests of one run, drawn in chunks as they are asked for."""
        mix = _Mix(self._kinds, self._max_total_tokens, seed)
        return _generate(self._schedule.times_ns(seed), mix)


def _generate(chunks: Iterator[Tokens], mix: _Mix) -> Iterator[Request]:
    first_id = 0
    for times_ns in chunks:
        yield from mix.requests((times_ns / NS_PER_S).tolist(), first_id)
        first_id += len(times_ns)


class _Mix:
    """The random state of one run: which kind comes next, and what it is like."""

    def __init__(self, kinds: Mapping[str, Kind], max_total_tokens: int | None, seed: int) -> None:
        self._kinds = [_Drawn(name, kind, seed) for name, kind in kinds.items()]
        self._max_total_tokens = max_total_tokens
        upper = np.cumsum([kind.share for kind in kinds.values()])
        self._upper = upper / upper[-1]
        self._choice = stream(seed, "kinds")

    def requests(self, times_s: list[float], first_id: int) -> Iterator[Request]:
        """The next requests, one for each of `times_s`."""
        size = len(times_s)
        chosen = np.searchsorted(self._upper, self._choice.random(size), side="right")
        prompts, outputs, prefixes = np.zeros((3, size), dtype=np.int64)
        for index, kind in enumerate(self._kinds):
            mine = np.flatnonzero(chosen == index)
            prompts[mine], outputs[mine], prefixes[mine] = kind.draw(len(mine))
        if self._max_total_tokens is not None:
            outputs = np.minimum(outputs, self._max_total_tokens - prompts)
        columns = (prompts.tolist(), outputs.tolist(), prefixes.tolist(), chosen.tolist())
        for number_, (time_s, *lengths, index) in enumerate(zip(times_s, *columns, strict=True)):
            yield self._kinds[index].request(first_id + number_, time_s, *lengths)


class _Drawn:
    """One kind's random state in one run."""

    def __init__(self, name: str, kind: Kind, seed: int) -> None:
        self._name, self._kind, self._seed = name, kind, seed
        self._lengths = _draw_lengths(name, kind, seed)
        self._prefixes = stream(seed, f"prefixes/{name}")

    def draw(self, size: int) -> tuple[Tokens, Tokens, Tokens]:
        """Prompt, output and the number of the shared prefix of the next `size` requests."""
        prompts, outputs = self._lengths(size)
        return (
            prompts + self._kind.prefix_tokens,
            outputs,
            self._prefixes.integers(self._kind.prefixes, size=size),
        )

    def request(
        self, request_id: int, time_s: float, prompt: int, output: int, prefix: int
    ) -> Request:
        kind = self._kind
        return Request(
            request_id=request_id,
            scheduled_s=time_s,
            prompt_tokens=prompt,
            output_tokens=output,
            kind=self._name,
            prefix=self._prefix(prefix, prompt),
            branches=kind.branches,
            survivors=self._survivors(request_id),
        )

    def _survivors(self, request_id: int) -> Survivors | None:
        process = self._kind.survivors
        if process is None:
            return None
        return partial(process.steps, self._seed, request_id, self._kind.branches)

    def _prefix(self, prefix: int, prompt: int) -> tuple[Segment, ...]:
        before = self._kind.prefix_tokens
        shared = before + int(self._kind.prefix_share * (prompt - before))
        return (shared_segment(f"kinds/{self._name}", prefix, shared),) if shared else ()


def _draw_lengths(name: str, kind: Kind, seed: int) -> Callable[[int], tuple[Tokens, Tokens]]:
    if kind.pairs is not None:
        return partial(kind.pairs.draw, stream(seed, f"lengths/{name}/pairs"))
    prompt, output = _lengths(kind)
    prompts, outputs = (stream(seed, f"lengths/{name}/{part}") for part in ("prompt", "output"))
    return lambda size: (prompt.draw(prompts, size), output.draw(outputs, size))


def _lengths(kind: Kind) -> tuple[Lengths, Lengths]:
    assert kind.prompt is not None  # _check_kind saw to it
    assert kind.output is not None
    return kind.prompt, kind.output


def _check_kinds(kinds: Any) -> dict[str, Kind]:
    if not isinstance(kinds, Mapping) or not kinds:
        fix = "select some, as conf/workload/mixed.yaml does"
        raise refusal("workload.kinds", kinds, "a mapping of at least one kind", fix)
    for name, kind in kinds.items():
        _check_kind(f"workload.kinds.{name}", kind)
    total = math.fsum(kind.share for kind in kinds.values())
    if abs(total - 1) > _SHARES_TOLERANCE:
        shares = ", ".join(f"{name} {kind.share:g}" for name, kind in kinds.items())
        fix = f"change the shares ({shares}), as in workload.kinds.{next(iter(kinds))}.share=0.5"
        raise refusal("The sum of workload.kinds.*.share", round(total, 9), "1", fix)
    return dict(kinds)


def _check_kind(setting: str, kind: Any) -> None:
    if not isinstance(kind, Kind):
        fix = "give it share, prompt and output, as the files of conf/workload/kinds do"
        raise refusal(setting, kind, "a kind of request", fix)
    number(f"{setting}.share", kind.share, 0, 1, "(a share of all requests)", "use 0.2 for 20 %")
    _check_kind_lengths(setting, kind)
    _check_sharing(setting, kind)


def _check_kind_lengths(setting: str, kind: Any) -> None:
    if kind.pairs is None:
        check_lengths(f"{setting}.prompt", kind.prompt)
        check_lengths(f"{setting}.output", kind.output)
        return
    if not isinstance(kind.pairs, Pairs):
        fix = "select some with workload/kinds@workload.kinds.NAME=file"
        raise refusal(f"{setting}.pairs", kind.pairs, "pairs of lengths", fix)
    for name, value in (("prompt", kind.prompt), ("output", kind.output)):
        if value is not None:
            fix = "the pairs give both lengths"
            raise refusal(f"{setting}.{name}", value, "null where pairs are given", fix)


def _check_sharing(setting: str, kind: Any) -> None:
    fix = "0 shares nothing"
    count(f"{setting}.prefix_tokens", kind.prefix_tokens, 0, MAX_TOKENS, "tokens", fix)
    number(f"{setting}.prefix_share", kind.prefix_share, 0, 1, "(a share of the prompt)", fix)
    count(f"{setting}.prefixes", kind.prefixes, 1, MAX_TEXTS, "texts", "1 is one for all")
    fix = "1 is a single answer"
    branches = count(f"{setting}.branches", kind.branches, 1, MAX_BRANCHES, "branches", fix)
    if kind.survivors is None:
        return
    if not isinstance(kind.survivors, SurvivorProcess):
        fix = "give a process of workloads.survivors, as conf/workload/beam.yaml does"
        raise refusal(f"{setting}.survivors", kind.survivors, "null or a survivor process", fix)
    fix = "survivors need beams to choose from: change branches, or set survivors to null"
    count(f"{setting}.branches", branches, 2, kind.survivors.max_width, "beams", fix)


def _check_max_total_tokens(value: Any, kinds: Mapping[str, Kind]) -> int | None:
    if value is None:
        return None
    name, longest = max(kinds.items(), key=lambda item: item[1].longest_prompt_tokens)
    least = longest.longest_prompt_tokens + 1
    fix = f"raise it, or shorten the prompts of workload.kinds.{name}, which leave no output"
    return count("workload.max_total_tokens", value, least, MAX_TOKENS, "tokens", fix)
