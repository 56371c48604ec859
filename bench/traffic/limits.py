"""Requests that the engine's limits touch."""

from __future__ import annotations

from bench.config import Config
from bench.traffic.sample import Flags, Sample

NEAR = 0.9
"""Of max_model_len: a request at or above it is near the limit."""


def too_long(sample: Sample, config: Config) -> Flags:
    """Rejected at once: prompt + output exceed max_model_len."""
    return sample.total_tokens > config.max_model_len


def too_wide(sample: Sample, config: Config) -> Flags:
    """Rejected at once: more branches than sequences may run."""
    return sample.branches > config.engine.max_num_seqs


def served(sample: Sample, config: Config) -> Flags:
    """Not rejected; what never fits the KV budget is not known before a run."""
    return ~(too_long(sample, config) | too_wide(sample, config))


def limits(sample: Sample, config: Config) -> dict[str, float | int]:
    """The limits, and the shares of requests that come near one or pass it."""
    near = sample.total_tokens >= NEAR * config.max_model_len
    return {
        "max_model_len": config.max_model_len,
        "max_num_seqs": config.engine.max_num_seqs,
        "near_share": float((near & ~too_long(sample, config)).mean()),
        "too_long_share": float(too_long(sample, config).mean()),
        "too_many_branches_share": float(too_wide(sample, config).mean()),
        "rejected_share": float((~served(sample, config)).mean()),
    }
