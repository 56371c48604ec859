"""A fit beside its trace: what fit.json holds."""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from bench.plugins import make
from bench.traffic.fit.choice import Choice
from bench.traffic.fit.gaps import ArrivalFit, fit_arrivals
from bench.traffic.fit.target import FITTED, Floats, Ints
from bench.traffic.fit.trace import Trace
from bench.traffic.fit.workload import Part, fit_parts, section
from bench.turns import MOST_COUNTED
from workloads.arrivals.base import NS_PER_S
from workloads.base import Workload

WANTED = 0.05
"""Of p50, p90 and p99, relative."""
PARTS = (1, 2, 4, 8, 16)
"""Tried in turn where nobody says how many."""


class Pair(NamedTuple):
    """One quantity of the trace's requests, and of as many generated ones."""

    recorded: Ints | Floats
    generated: Ints | Floats

    def percentiles(self) -> dict[str, dict[str, float | None]]:
        """Of both, the smallest value with at least that share at or below it, and the relative
        error; None where the trace's is 0."""
        found: dict[str, dict[str, float | None]] = {}
        for name, share in FITTED.items():
            trace, ours = (float(np.quantile(x, share, method="inverted_cdf")) for x in self)
            found[name] = {
                "trace": trace,
                "generated": ours,
                "error": ours / trace - 1 if trace else None,
            }
        return found


class Result(NamedTuple):
    """A fit: the section of a workload, how it was chosen, and what comes of it."""

    trace: Trace
    settings: dict[str, Any]
    arrivals: ArrivalFit
    parts: list[Part]
    pairs: dict[str, Pair]

    @property
    def worst_total(self) -> float:
        """The largest relative error of prompt + output at p50, p90 and p99."""
        found = self.pairs["total_tokens"].percentiles()
        return max(abs(values["error"] or 0.0) for values in found.values())

    def figures(self) -> dict[str, Any]:
        """fit.json: errors are relative, `ks` is the distance of distribution functions."""
        trace = self.trace
        return {
            "trace": trace.name,
            "requests": len(trace.prompts),
            "reading": trace.facts,
            "arrivals": _arrivals(self.arrivals),
            "parts": [
                {
                    "share": part.share,
                    "prompt": _tried(part.prompt),
                    "output": _tried(part.output),
                }
                for part in self.parts
            ],
            "generated": {name: pair.percentiles() for name, pair in self.pairs.items()},
            "not_carried": {
                "rank_correlation": trace.rank_correlation,
                "prefix_found_share": trace.found_share,
                "later_turns": trace.later_turns,
                "with_branches": trace.branched,
            },
            "workload": self.settings,
        }


def fit(trace: Trace, name: str, parts: int | None, seed: int) -> Result:
    """Fits arrivals and lengths, and generates as many requests as the trace has, up to
    200,000. Of so many parts; None: the fewest of PARTS of which prompt + output comes out near
    enough, else those of which it comes nearest."""
    arrivals = fit_arrivals(trace.times_ns)
    tried = []
    for number in PARTS if parts is None else (parts,):
        tried.append(_fit(trace, name, arrivals, number, seed))
        if tried[-1].worst_total <= WANTED:
            return tried[-1]
    return min(tried, key=lambda result: result.worst_total)


def _fit(trace: Trace, name: str, arrivals: ArrivalFit, parts: int, seed: int) -> Result:
    fitted = fit_parts(trace, parts)
    settings = section(name, trace, arrivals, fitted)
    return Result(trace, settings, arrivals, fitted, _pairs(trace, settings, seed))


def _pairs(trace: Trace, settings: dict[str, Any], seed: int) -> dict[str, Pair]:
    timed = settings["rate_rps"] is not None
    workload: Workload = make(settings if timed else settings | {"rate_rps": 1.0}, "workload")
    drawn = list(islice(workload.requests(seed), MOST_COUNTED))
    prompts = np.array([request.prompt_tokens for request in drawn])
    outputs = np.array([request.output_tokens for request in drawn])
    pairs = {
        "prompt_tokens": Pair(trace.prompts, prompts),
        "output_tokens": Pair(trace.outputs, outputs),
        "total_tokens": Pair(trace.totals, prompts + outputs),
    }
    if timed and len(drawn) > 1:
        gaps_s = np.diff(trace.times_ns) / NS_PER_S
        pairs["gap_s"] = Pair(gaps_s, np.diff([request.scheduled_s for request in drawn]))
    return pairs


def _arrivals(found: ArrivalFit) -> dict[str, Any]:
    tried = [each._asdict() | {"chosen": each is found.chosen} for each in found.tried]
    return found._asdict() | {"chosen": found.chosen.family, "tried": tried, "notes": found.notes}


def _tried(choice: Choice) -> list[dict[str, Any]]:
    return [
        {
            "family": fit.candidate.family,
            "by": fit.candidate.how,
            "chosen": fit is choice.chosen,
            "errors": fit.errors,
            "ks": fit.ks,
            "settings": fit.candidate.settings,
        }
        for fit in choice.tried
    ]
