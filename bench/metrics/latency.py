"""Latency of completed requests, in seconds: one definition a number (docs/metrics.md).

Each takes a table with one row a request (bench/metrics/records.py) and gives a value a row,
null where it is undefined.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd

QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}


def ttft_s(requests: pd.DataFrame) -> pd.Series[float]:
    """Time to first token: first token - sent."""
    return requests["first_token_s"] - requests["sent_s"]


def ttft_scheduled_s(requests: pd.DataFrame) -> pd.Series[float]:
    """First token - when the workload meant to send: a late client is seen (no coordinated
    omission)."""
    return requests["first_token_s"] - requests["scheduled_s"]


def tpot_s(requests: pd.DataFrame) -> pd.Series[float]:
    """Time per output token after the first: (last - first) / (n - 1), for n of 2 or more."""
    gaps = (requests["generated_tokens"] - 1).where(requests["generated_tokens"] > 1)
    return (requests["last_token_s"] - requests["first_token_s"]) / gaps


def e2e_s(requests: pd.DataFrame) -> pd.Series[float]:
    """End - sent."""
    return requests["end_s"] - requests["sent_s"]


def normalized_latency_s(requests: pd.DataFrame) -> pd.Series[float]:
    """E2E / output tokens (Orca, section 6), for at least one."""
    tokens = requests["generated_tokens"].where(requests["generated_tokens"] > 0)
    return e2e_s(requests) / tokens


LATENCIES: dict[str, Callable[[pd.DataFrame], pd.Series[float]]] = {
    "ttft_s": ttft_s,
    "ttft_scheduled_s": ttft_scheduled_s,
    "tpot_s": tpot_s,
    "e2e_s": e2e_s,
    "normalized_latency_s": normalized_latency_s,
}


OF_THE_SERVER = ("ttft_s", "ttft_scheduled_s")
"""The rest lasts as long as its client lets it."""


def latencies(completed: pd.DataFrame) -> dict[str, dict[str, float | int | None]]:
    """The distribution of each, of completed requests. A slow reader sets its own pace once the
    first token is there, and has no say in what comes after."""
    paced = prompt_readers(completed)
    return {
        name: distribution(
            measure(completed if name in OF_THE_SERVER else paced).to_numpy(dtype=float)
        )
        for name, measure in LATENCIES.items()
    }


def prompt_readers(requests: pd.DataFrame) -> pd.DataFrame:
    """Requests whose clients read as fast as tokens come."""
    return requests[~requests["slow_reader"].astype(bool)]


def left(requests: pd.DataFrame) -> dict[str, int]:
    """How many clients left, by how, the commonest first."""
    return {str(how): int(count) for how, count in requests["left"].value_counts().items()}


def distribution(
    values: np.ndarray, weights: np.ndarray | None = None
) -> dict[str, float | int | None]:
    """Mean, percentiles and count of the defined values, each occurring `weights` times.

    A percentile is the smallest value with at least that share at or below it. The q-th is null
    below 1 / (1 - q) samples: a p99 needs 100.
    """
    if weights is None:
        weights = np.ones(len(values), dtype=np.int64)
    defined = ~np.isnan(values)
    order = np.argsort(values[defined], kind="stable")
    values, weights = values[defined][order], weights[defined][order]
    count = int(weights.sum())
    mean = float(np.dot(values, weights) / count) if count else None
    below = np.cumsum(weights)
    result: dict[str, float | int | None] = {"mean": mean}
    for name, q in QUANTILES.items():
        result[name] = _quantile(values, below, count, q)
    return result | {"count": count}


def _quantile(values: np.ndarray, below: np.ndarray, count: int, q: float) -> float | None:
    if count < round(1 / (1 - q)):
        return None
    rank = math.ceil(round(q * count, 6))
    return float(values[np.searchsorted(below, rank)])
