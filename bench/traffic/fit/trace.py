"""What a fit reads of a trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bench.traffic.fit.target import Ints
from bench.traffic.overlap import found_tokens
from bench.turns import MOST_COUNTED, turns
from workloads.arrivals.base import NS_PER_S
from workloads.base import Request
from workloads.trace import TraceWorkload

_TURN = np.dtype(
    [("time_s", "f8"), ("first", "?"), ("prompt", "i8"), ("output", "i8"), ("branches", "i8")]
)


class Trace(NamedTuple):
    """Times of first turns in ns, lengths of all turns in tokens; `facts` are of its reading.

    A fit carries no later turns, no branches and no shared prefixes: the first two are counted,
    of the last there is the share of prompt tokens that were said before, among the first 200,000
    turns with each session's in a row.
    """

    name: str
    times_ns: Ints
    prompts: Ints
    outputs: Ints
    later_turns: int
    branched: int
    found_share: float
    facts: dict[str, Any]

    @property
    def totals(self) -> Ints:
        return self.prompts + self.outputs

    @property
    def rank_correlation(self) -> float | None:
        """Spearman's, of prompts and outputs; None where either are all alike."""
        if np.ptp(self.prompts) == 0 or np.ptp(self.outputs) == 0:
            return None
        prompts, outputs = (pd.Series(column).rank() for column in (self.prompts, self.outputs))
        return float(np.corrcoef(prompts, outputs)[0, 1])


def read_trace(workload: TraceWorkload) -> Trace:
    """All that the workload replays. Raises WorkloadError."""
    rows = np.fromiter(_turns(workload.requests(0)), _TURN)
    firsts = rows["time_s"][rows["first"]]
    return Trace(
        name=workload.name,
        times_ns=np.rint(firsts * NS_PER_S).astype(np.int64),
        prompts=rows["prompt"],
        outputs=rows["output"],
        later_turns=int((~rows["first"]).sum()),
        branched=int((rows["branches"] > 1).sum()),
        found_share=_found_share(list(islice(turns(workload.requests(0)), MOST_COUNTED))),
        facts=workload.trace_facts()["workload"],
    )


def _found_share(requests: list[Request]) -> float:
    asked = sum(request.prompt_tokens for request in requests)
    return int(found_tokens(requests).sum()) / asked


def _turns(first_turns: Iterable[Request]) -> Iterator[tuple[float, bool, int, int, int]]:
    for first in first_turns:
        for turn in turns([first]):
            yield (
                turn.scheduled_s,
                turn is first,
                turn.prompt_tokens,
                turn.output_tokens,
                turn.branches,
            )
