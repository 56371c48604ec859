"""Generated traffic: kinds of request in given shares, each with lengths of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals.base import NS_PER_S, Arrivals, check_arrivals
from workloads.base import Request
from workloads.lengths.base import Lengths
from workloads.settings import (
    MAX_TOKENS,
    count,
    number,
    optional_duration_s,
    optional_rate_rps,
    optional_requests,
    refusal,
    text,
)
from workloads.streams import stream

_SHARES_TOLERANCE = 1e-6


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """One kind of request: its share of all requests (0 to 1) and its lengths."""

    prompt: Lengths
    output: Lengths
    share: float = 1.0


class MixedWorkload:
    """Requests of several kinds, drawn independently, the first at 0 s.

    Ends after `num_requests`, or at `duration_s` (excluded), whichever comes first; at least one
    must be set, unless the arrivals are a trace's, which end by themselves. `rate_rps` null is the
    arrivals' own rate. `max_total_tokens` bounds prompt + output: the output is cut to fit.

    Arrivals, the choice of kinds and each kind's prompts and outputs draw from streams of their
    own: changing one leaves the others' numbers alone, and the n-th request of a kind has the same
    lengths whatever the shares. Raises WorkloadError for a setting that cannot be used.
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
        self._arrivals = check_arrivals(arrivals)
        self._rate_rps = _choose_rate_rps(rate_rps, self._arrivals)
        self._num_requests = optional_requests("workload.num_requests", num_requests)
        self._duration_s = optional_duration_s("workload.duration_s", duration_s)
        if num_requests is None and duration_s is None and self._arrivals.own_rate_rps is None:
            fix = "set workload.num_requests or workload.duration_s"
            raise refusal("workload.duration_s", None, "set where num_requests is null", fix)
        self._kinds = _check_kinds(kinds)
        self._max_total_tokens = _check_max_total_tokens(max_total_tokens, self._kinds)

    def requests(self, seed: int) -> Iterator[Request]:
        """The requests of one run, drawn in chunks as they are asked for."""
        mix = _Mix(self._kinds, seed)
        chunks = self._arrivals.times_ns(stream(seed, "arrivals"), self._rate_rps)
        return self._generate(chunks, mix)

    def _generate(self, chunks: Iterator[NDArray[np.int64]], mix: _Mix) -> Iterator[Request]:
        sent = 0
        for chunk in chunks:
            times_ns = self._within_limits(chunk, sent)
            yield from self._requests_at(times_ns, sent, mix)
            sent += len(times_ns)
            if len(times_ns) < len(chunk) or sent == self._num_requests:
                return

    def _within_limits(self, times_ns: NDArray[np.int64], sent: int) -> NDArray[np.int64]:
        if self._num_requests is not None:
            times_ns = times_ns[: self._num_requests - sent]
        if self._duration_s is not None:
            times_ns = times_ns[: np.searchsorted(times_ns, self._duration_s * NS_PER_S)]
        return times_ns

    def _requests_at(
        self, times_ns: NDArray[np.int64], first_id: int, mix: _Mix
    ) -> Iterator[Request]:
        kinds, prompts, outputs = mix.draw(len(times_ns))
        if self._max_total_tokens is not None:
            outputs = np.minimum(outputs, self._max_total_tokens - prompts)
        columns = ((times_ns / NS_PER_S).tolist(), prompts.tolist(), outputs.tolist(), kinds)
        for request_id, columns_of_one in enumerate(zip(*columns, strict=True), first_id):
            yield Request(request_id, *columns_of_one)


class _Mix:
    """The random state of one run: which kind comes next, and how long it is."""

    def __init__(self, kinds: Mapping[str, Kind], seed: int) -> None:
        self._names = list(kinds)
        self._kinds = list(kinds.values())
        upper = np.cumsum([kind.share for kind in self._kinds])
        self._upper = upper / upper[-1]
        self._choice = stream(seed, "kinds")
        self._prompts = [stream(seed, f"lengths/{name}/prompt") for name in self._names]
        self._outputs = [stream(seed, f"lengths/{name}/output") for name in self._names]

    def draw(self, size: int) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
        """Names, prompt lengths and output lengths of the next `size` requests."""
        chosen = np.searchsorted(self._upper, self._choice.random(size), side="right")
        prompts, outputs = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        for index, kind in enumerate(self._kinds):
            mine = np.flatnonzero(chosen == index)
            prompts[mine] = kind.prompt.draw(self._prompts[index], len(mine))
            outputs[mine] = kind.output.draw(self._outputs[index], len(mine))
        return [self._names[index] for index in chosen.tolist()], prompts, outputs


def _choose_rate_rps(value: Any, arrivals: Arrivals) -> float:
    rate_rps = optional_rate_rps("workload.rate_rps", value)
    rate_rps = arrivals.own_rate_rps if rate_rps is None else rate_rps
    if rate_rps is None:
        allowed = "a mean rate in requests/s, as these arrivals have none of their own"
        raise refusal("workload.rate_rps", value, allowed, "set workload.rate_rps=5")
    return rate_rps


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
    _check_lengths(f"{setting}.prompt", kind.prompt)
    _check_lengths(f"{setting}.output", kind.output)


def _check_lengths(setting: str, value: Any) -> None:
    if not isinstance(value, Lengths):
        one = f"{{_target_: workloads.lengths.fixed.FixedLength, tokens: {value}}}"
        raise refusal(setting, value, "a distribution of lengths", f"for one length: {one}")


def _check_max_total_tokens(value: Any, kinds: Mapping[str, Kind]) -> int | None:
    if value is None:
        return None
    name, longest = max(kinds.items(), key=lambda item: item[1].prompt.max_tokens)
    least = longest.prompt.max_tokens + 1
    fix = f"raise it, or lower workload.kinds.{name}.prompt.max_tokens, which leaves no output"
    return count("workload.max_total_tokens", value, least, MAX_TOKENS, "tokens", fix)
