"""The live-token estimate of a configuration, with and without a prefix cache."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bench.config import Config, parse_bytes
from bench.costs import CostModel
from bench.traffic.limits import served
from bench.traffic.live import Live, OverloadError, mean_work, solve, with_clients
from bench.traffic.sample import Ints, Sample


class Estimate(NamedTuple):
    """The live tokens, or why they are not known."""

    live: Live | None
    why_null: str | None = None

    def figures(self, token_bytes: int) -> dict[str, Any]:
        """Of one GPU."""
        live = self.live
        return {
            "requests": live.requests if live else None,
            "step_s": live.step_s if live else None,
            "kv_tokens": live.kv_tokens if live else None,
            "kv_bytes": live.kv_tokens * token_bytes if live else None,
            "why_null": self.why_null,
        }


def estimate(
    sample: Sample, config: Config, costs: CostModel, found_tokens: Ints, *, closed: bool
) -> Estimate:
    """At the mean rate, where so many tokens of each prompt are found in a cache."""
    if closed:
        return Estimate(None, "a closed loop's rate is what the server makes of it")
    starts = sample.sessions_per_s
    if starts is None:
        return Estimate(None, "there is no rate: one session alone, or all start at one moment")
    if config.engine.batching == "static":
        return Estimate(None, "static batches are not modelled here")
    kept = served(sample, config)
    if not kept.any():
        return Estimate(None, "every request is rejected")
    rate_rps = starts * sample.turns_per_session * float(kept.mean())
    work = mean_work(sample, kept, found_tokens)
    try:
        live = solve(work, rate_rps, costs, config.engine.max_num_seqs)
    except OverloadError as error:
        return Estimate(None, f"more than is served at this rate: {error}")
    buffer_tokens = config.serve.stream_buffer_tokens
    return Estimate(with_clients(live, sample, kept, rate_rps, buffer_tokens))


def both_estimates(
    sample: Sample, config: Config, costs: CostModel, found_tokens: Ints, *, closed: bool
) -> dict[str, Estimate]:
    """By what a prefix cache finds: nothing, or all that was said before."""
    nothing = np.zeros_like(found_tokens)
    return {
        name: estimate(sample, config, costs, found, closed=closed)
        for name, found in (("no_prefix_cache", nothing), ("unbounded_prefix_cache", found_tokens))
    }


def live_figures(estimates: dict[str, Estimate], config: Config) -> dict[str, Any]:
    """What workload.json has of live tokens: modelled, and of one GPU."""
    token_bytes = config.model.kv_bytes_per_token(config.kv_dtype, config.tensor_parallel)
    return {
        "time": "modelled",
        "kv_bytes_per_token": token_bytes,
        "kv_budget_bytes": most_kv_bytes(config),
        "kv_budget_is": "set" if config.kv_budget is not None else "an upper bound",
        **{name: each.figures(token_bytes) for name, each in estimates.items()},
    }


def most_kv_bytes(config: Config) -> int | None:
    """At most this is left for KV on one GPU: `kv_budget`, or usable memory x utilization -
    weights; activations and workspace take of the latter. None where weights do not fit."""
    if config.kv_budget is not None:
        return parse_bytes("kv_budget", config.kv_budget)
    weights = config.model.weight_bytes(config.weight_dtype, config.tensor_parallel)
    left = int(config.gpu.usable_bytes * config.utilization) - weights
    return left if left > 0 else None
