"""Requests that stand alone: a prompt, and one answer or several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.base import Request, Segment, Survivors
from workloads.clients import Clients
from workloads.kinds.base import Draft, Drafts, check_share
from workloads.lengths.base import Lengths, Pairs, check_lengths
from workloads.settings import MAX_TOKENS, count, number, refusal
from workloads.shared_texts import MAX_TEXTS, shared_segment
from workloads.streams import stream
from workloads.survivors.base import MAX_BRANCHES, SurvivorProcess

Tokens = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class SingleTurn:
    """Requests of lengths drawn from `prompt` and `output` independently, or from `pairs` together.

    Each prompt starts with `prefix_tokens` shared tokens, put before what was drawn, and with the
    leading `prefix_share` (0 to 1, rounded down to whole tokens) of what was drawn: with one of
    `prefixes` texts, chosen uniformly. `branches` samples come out of each prompt; with
    `survivors` they are beams. An output is cut where prompt + output would pass the workload's
    `max_total_tokens`.
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
    clients: Clients | None = None

    def least_total_tokens(self) -> int:
        drawn = self.pairs.longest_prompt_tokens if self.pairs else self._lengths()[0].max_tokens
        return self.prefix_tokens + drawn + 1

    def check(self, setting: str) -> None:
        check_share(setting, self.share)
        _check_lengths(setting, self)
        _check_sharing(setting, self)

    def drafts(self, name: str, seed: int, max_total_tokens: int | None) -> Drafts:
        return _Drawn(self, name, seed, max_total_tokens).drafts

    def draw(self, name: str, seed: int) -> Callable[[int], tuple[Tokens, Tokens]]:
        """Draws the lengths of the next so many."""
        if self.pairs is not None:
            return partial(self.pairs.draw, stream(seed, f"lengths/{name}/pairs"))
        prompt, output = self._lengths()
        prompts, outputs = (stream(seed, f"lengths/{name}/{part}") for part in ("prompt", "output"))
        return lambda size: (prompt.draw(prompts, size), output.draw(outputs, size))

    def _lengths(self) -> tuple[Lengths, Lengths]:
        assert self.prompt is not None  # check() saw to it
        assert self.output is not None
        return self.prompt, self.output


class _Drawn:
    """The random state of one run."""

    def __init__(
        self, kind: SingleTurn, name: str, seed: int, max_total_tokens: int | None
    ) -> None:
        self._name, self._kind, self._seed = name, kind, seed
        self._max_total_tokens = max_total_tokens
        self._lengths = kind.draw(name, seed)
        self._prefixes = stream(seed, f"prefixes/{name}")

    def drafts(self, size: int) -> list[Draft]:
        """The next `size` requests."""
        prompts, outputs = self._lengths(size)
        prompts = prompts + self._kind.prefix_tokens
        if self._max_total_tokens is not None:
            outputs = np.minimum(outputs, self._max_total_tokens - prompts)
        prefixes = self._prefixes.integers(self._kind.prefixes, size=size)
        columns = zip(prompts.tolist(), outputs.tolist(), prefixes.tolist(), strict=True)
        return [Draft(partial(self._request, *column)) for column in columns]

    def _request(
        self, prompt: int, output: int, prefix: int, request_id: int, time_s: float, _: int
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


def _check_lengths(setting: str, kind: Any) -> None:
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
