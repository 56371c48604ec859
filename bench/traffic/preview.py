"""The figures of `fragbench workload`: what workload.json holds (docs/preview.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.config import Config
from bench.costs.configured import resolve_costs
from bench.traffic.counts import branches, clients, kinds, lengths
from bench.traffic.estimate import Estimate, both_estimates, live_figures
from bench.traffic.limits import limits
from bench.traffic.overlap import found_tokens
from bench.traffic.rates import MINUTE_S, gap_cv, peak_to_mean, windows
from bench.traffic.sample import Floats, Ints, Sample, draw
from bench.turns import sessions
from workloads.base import Workload, WorkloadError

BLOCK_TOKENS = 16
"""Of a prefix cache, which finds full blocks only."""


@dataclass(frozen=True)
class Preview:
    """A workload's turns with the times at which they are sent (None in a closed loop, where the
    server's speed decides), and the figures of both."""

    sample: Sample
    sent_s: Floats | None
    figures: dict[str, Any]


def preview(workload: Workload, config: Config, kv_block_tokens: int | None) -> Preview:
    """Draws the workload and counts. Raises WorkloadError for one without requests."""
    sample = draw(sessions(workload, config.seed, config.stop_after_s))
    if not sample.turns:
        raise WorkloadError(f"workload={workload.name} has no requests: widen its limits.")
    users = workload.closed_loop.users if workload.closed_loop else None
    found = _found_tokens(sample, closed=users is not None)
    costs = resolve_costs(config, kv_block_tokens)
    in_blocks = found - found % BLOCK_TOKENS
    estimates = both_estimates(sample, config, costs, in_blocks, closed=users is not None)
    rates = _rates(sample, closed=users is not None)
    answer = next((name for name, each in estimates.items() if each.live), None)
    sent_s = None if users is not None else _sent_s(sample, estimates.get(answer or ""))
    if sent_s is not None and config.stop_after_s is not None:
        inside = sent_s < config.stop_after_s
        sample, sent_s, found = sample.where(inside), sent_s[inside], found[inside]
    figures = {
        "turns": len(sample.turns),
        "sessions": sample.sessions,
        "whole": sample.whole,
        "traces": workload.trace_facts(),
        "users": users,
        "rates": rates,
        "times": _times(sample, sent_s, answer),
        "lengths": lengths(sample),
        "kinds": kinds(sample),
        "limits": limits(sample, config),
        "prefix": _prefix(sample, found),
        "branches": branches(sample),
        "clients": clients(sample),
        "live": live_figures(estimates, config),
    }
    return Preview(sample, sent_s, figures)


def _found_tokens(sample: Sample, *, closed: bool) -> Ints:
    """Of each turn, sent as soon as the turn before and the think time allow; in a closed loop, as
    drawn."""
    order = np.arange(len(sample.turns))
    if not closed:
        order = np.argsort(_sent_s(sample, None), kind="stable")
    found = np.zeros_like(order)
    found[order] = found_tokens([sample.turns[place] for place in order.tolist()])
    return found


def _sent_s(sample: Sample, answers: Estimate | None) -> Floats:
    if answers is None or answers.live is None:
        return sample.sent_s(np.zeros(len(sample.turns)))
    return sample.sent_s(answers.live.answered_in_s(sample.output_tokens))


def _rates(sample: Sample, *, closed: bool) -> dict[str, float | None]:
    """A second, in steady state: once as many sessions end as start."""
    starts = None if closed else sample.sessions_per_s
    turns = None if starts is None else starts * sample.turns_per_session

    def tokens(each: Ints) -> float | None:
        return None if turns is None else turns * float(each.mean())

    return {
        "sessions_per_s": starts,
        "requests_per_s": turns,
        "prompt_tokens_per_s": tokens(sample.prompt_tokens),
        "output_tokens_per_s": tokens(sample.output_tokens * sample.branches),
    }


def _times(sample: Sample, sent_s: Floats | None, answer: str | None) -> dict[str, Any]:
    """How requests are spread, the peak and minutes as long as sessions start; `answers` says what
    later turns wait for: an estimate's, or none."""
    if sent_s is None:
        return dict.fromkeys(
            ("answers", "last_s", "start_gap_cv", "peak_to_mean_10s", "requests_per_minute")
        )
    starting = sent_s[sent_s <= sample.starts_s.max()]
    return {
        "answers": (answer or "none") if sample.sessions < len(sample.turns) else None,
        "last_s": float(sent_s.max()),
        "start_gap_cv": gap_cv(sample.starts_s),
        "peak_to_mean_10s": peak_to_mean(starting),
        "requests_per_minute": windows(starting, MINUTE_S).sums.astype(int).tolist() or None,
    }


def _prefix(sample: Sample, found: Ints) -> dict[str, float | int]:
    """Shares of prompt tokens that were said before."""
    asked = int(sample.prompt_tokens.sum())
    return {
        "found_share": int(found.sum()) / asked,
        "found_block_share": int((found - found % BLOCK_TOKENS).sum()) / asked,
        "block_tokens": BLOCK_TOKENS,
    }
