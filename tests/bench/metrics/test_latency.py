"""Latency by the definitions of docs/metrics.md, on two requests by hand, and percentiles."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.metrics.latency import (
    QUANTILES,
    distribution,
    e2e_s,
    normalized_latency_s,
    tpot_s,
    ttft_s,
    ttft_scheduled_s,
)

# The client sent the first one half a second late; the second generated a single token.
REQUESTS = pd.DataFrame(
    {
        "scheduled_s": [1.0, 2.0],
        "sent_s": [1.5, 2.0],
        "first_token_s": [2.0, 5.0],
        "last_token_s": [4.0, 5.0],
        "end_s": [4.5, 5.0],
        "generated_tokens": [5, 1],
    }
)


@pytest.mark.parametrize(
    ("measure", "first", "second"),
    [
        (ttft_s, 0.5, 3.0),
        (ttft_scheduled_s, 1.0, 3.0),
        (tpot_s, 2.0 / 4, None),  # undefined below two tokens
        (e2e_s, 3.0, 3.0),
        (normalized_latency_s, 3.0 / 5, 3.0),
    ],
)
def test_definitions(measure: object, first: float, second: float | None) -> None:
    values = measure(REQUESTS)  # type: ignore[operator]
    assert values[0] == pytest.approx(first)
    assert pd.isna(values[1]) if second is None else values[1] == pytest.approx(second)


def test_an_answer_without_a_token_has_no_latency_a_token() -> None:
    """One that ended at once, as a server's answer of nothing does."""
    empty = REQUESTS.assign(generated_tokens=[0, 0])
    figures = distribution(normalized_latency_s(empty).to_numpy(dtype=float))
    assert (figures["mean"], figures["count"]) == (None, 0)


def test_undefined_values_are_left_out_and_counted_out() -> None:
    figures = distribution(tpot_s(REQUESTS).to_numpy(dtype=float))
    assert figures == {"mean": 0.5, "p50": None, "p90": None, "p95": None, "p99": None, "count": 1}


def test_nothing_gives_null_and_never_zero() -> None:
    figures = distribution(np.array([]))
    assert figures == {"mean": None, "p50": None, "p90": None, "p95": None, "p99": None, "count": 0}


@pytest.mark.parametrize(("name", "least"), [("p50", 2), ("p90", 10), ("p95", 20), ("p99", 100)])
def test_a_percentile_needs_so_many_samples(name: str, least: int) -> None:
    assert distribution(np.arange(least - 1.0))[name] is None
    assert distribution(np.arange(float(least)))[name] is not None


def test_a_percentile_is_a_sample_that_so_many_do_not_exceed() -> None:
    hundred = np.arange(1.0, 101.0)
    figures = distribution(hundred[::-1])
    assert figures == {
        "mean": 50.5, "p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "count": 100
    }  # fmt: skip
    assert distribution(np.arange(1.0, 102.0))["p99"] == 100.0  # 99 % of 101 are 99.99 samples


def test_weights_count_as_so_many_samples() -> None:
    figures = distribution(np.array([3.0, 1.0, np.nan]), np.array([10, 90, 1000]))
    assert figures == {"mean": 1.2, "p50": 1.0, "p90": 1.0, "p95": 3.0, "p99": 3.0, "count": 100}


values_and_weights = st.lists(
    st.tuples(st.floats(-1e6, 1e6, allow_nan=False), st.integers(1, 60)), min_size=1, max_size=60
)


@given(values_and_weights)
def test_percentiles_are_numpys_inverted_cdf(pairs: list[tuple[float, int]]) -> None:
    values, weights = (np.array(column) for column in zip(*pairs, strict=True))
    repeated = np.repeat(values, weights)
    figures = distribution(values, weights)
    assert figures["count"] == len(repeated)
    assert figures["mean"] == pytest.approx(repeated.mean(), abs=1e-6)
    for name, q in QUANTILES.items():
        if figures[name] is not None:
            # In whole hundredths, so that 0.95 x 20 is 19 and not a bit more.
            rank = -(-round(q * 100) * len(repeated) // 100)
            assert figures[name] == np.sort(repeated)[rank - 1]
            weighted = np.quantile(values, q, weights=weights, method="inverted_cdf")
            if (round(q * 100) * len(repeated)) % 100:  # numpy rounds where it falls on a sample
                assert figures[name] == weighted
