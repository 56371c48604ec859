"""What a workload's requests are like, whenever they come."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.metrics.latency import distribution
from bench.traffic.sample import Ints, Sample


def lengths(sample: Sample) -> dict[str, dict[str, float | int | None]]:
    """Of prompts, of answers and of both together, in tokens."""
    columns = {
        "prompt_tokens": sample.prompt_tokens,
        "output_tokens": sample.output_tokens,
        "total_tokens": sample.total_tokens,
    }
    return {name: _lengths(column) for name, column in columns.items()}


def _lengths(tokens: Ints) -> dict[str, float | int | None]:
    return {**distribution(tokens.astype(np.float64)), "max": int(tokens.max())}


def kinds(sample: Sample) -> dict[str, Any]:
    """Each kind's share of the requests, and its lengths; empty where there is one."""
    names = np.array([turn.kind for turn in sample.turns])
    every = list(dict.fromkeys(names.tolist()))
    if len(every) == 1:
        return {}
    return {
        name: {
            "share": float((names == name).mean()),
            "prompt_tokens": _lengths(sample.prompt_tokens[names == name]),
            "output_tokens": _lengths(sample.output_tokens[names == name]),
        }
        for name in every
    }


def branches(sample: Sample) -> dict[str, float | int]:
    """Requests with several answers: samples, or beams."""
    beams = np.array([turn.survivors is not None for turn in sample.turns])
    return {
        "samples": int(((sample.branches > 1) & ~beams).sum()),
        "beams": int(beams.sum()),
        "mean_branches": float(sample.branches.mean()),
    }


def clients(sample: Sample) -> dict[str, int]:
    """Requests whose client does more than wait for all of the answer."""
    return {
        "leave": sum(turn.client.leave is not None for turn in sample.turns),
        "read_slowly": sum(turn.client.tokens_per_s is not None for turn in sample.turns),
    }
