"""Figures from rows, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from bench.load.records import ATTEMPTS
from bench.load.summary import figures, gaps_s, last_attempts, outcome, warnings


def rows(*given: dict[str, Any]) -> pd.DataFrame:
    """A table of attempts: first token 0.1 s after each was sent, then a token every 0.1 s."""
    filled = []
    for number, row in enumerate(given):
        row = {
            "request_id": number, "attempt": 0, "status": "completed", "branches": 1,
            "prompt_tokens": 10, "output_tokens": 3, "generated_tokens": 3,
            "all_generated_tokens": 3, "slow_reader": False, "new_connection": False,
            "scheduled_s": float(number), "counted_by": "ids", "http_status": 200,
        } | row  # fmt: skip
        sent_s = row.setdefault("sent_s", row["scheduled_s"])
        times_s = [sent_s + 0.1 * (1 + token) for token in range(row["generated_tokens"])]
        row |= {
            "token_times_s": times_s, "first_token_s": times_s[0], "last_token_s": times_s[-1],
        }  # fmt: skip
        filled.append({"end_s": times_s[-1]} | row)
    return pa.Table.from_pylist(filled, schema=ATTEMPTS).to_pandas()


def test_figures_of_a_small_run() -> None:
    """Ten requests a second apart, each answered within 0.3 s: the run is 9.3 s long."""
    found = figures(rows(*[{}] * 10), 0, 0)
    assert found["requests"] == {
        "sent": 10, "completed": 10, "failed": 0, "cancelled": 0, "rejected": 0, "unfinished": 0,
    }  # fmt: skip
    assert found["ttft_s"]["p50"] == pytest.approx(0.1)
    assert found["tpot_s"]["p50"] == pytest.approx(0.1)
    assert found["itl_s"]["mean"] == pytest.approx(0.1)
    assert found["itl_s"]["count"] == 20
    assert found["e2e_s"]["mean"] == pytest.approx(0.3)
    assert found["throughput"]["requests_per_s"] == pytest.approx(10 / 9.3)
    assert found["throughput"]["output_tokens_per_s"] == pytest.approx(30 / 9.3)
    assert found["throughput"]["total_tokens_per_s"] == pytest.approx(130 / 9.3)
    assert found["ttft_s"]["p99"] is None


def test_nothing_completed_gives_nulls() -> None:
    refused = {"status": "rejected", "cause": "HTTP 429: full", "http_status": 429}
    found = figures(rows(refused, refused), 0, 0)
    assert found["requests"]["rejected"] == 2
    assert set(found["throughput"].values()) == {None}
    for name in ("ttft_s", "ttft_scheduled_s", "tpot_s", "itl_s", "e2e_s"):
        assert found[name] == dict.fromkeys(("mean", "p50", "p90", "p95", "p99")) | {"count": 0}
    assert found["clients"]["causes"] == {"HTTP 429: full": 2}


def test_nothing_sent_gives_nulls() -> None:
    found = figures(ATTEMPTS.empty_table().to_pandas(), 0, 0)
    assert found["requests"]["sent"] == 0
    assert found["lateness_s"]["max"] is None
    assert set(found["throughput"].values()) == {None}


def test_warm_up_and_cool_down_are_left_out_and_said() -> None:
    """Ten requests from 0 s on, 9.3 s in all; 2.5 s off each end leaves those sent from 3 s to
    6 s, and of those that ended, from 3.3 s to 6.3 s: four in 4.3 s."""
    found = figures(rows(*[{}] * 10), 2.5, 2.5)
    assert found["window"]["from_s"] == 2.5
    assert found["window"]["to_s"] == pytest.approx(6.8)
    assert found["window"]["left_out"] == {"warm_up_or_cool_down": 6, "slow_readers": 0}
    assert found["ttft_s"]["count"] == 4
    assert found["throughput"]["requests_per_s"] == pytest.approx(4 / 4.3)
    assert found["requests"]["completed"] == 10


def test_slow_readers_have_no_say_in_latency() -> None:
    """But in what comes before they read."""
    found = figures(rows({}, {"slow_reader": True}), 0, 0)
    assert found["ttft_s"]["count"] == found["ttft_scheduled_s"]["count"] == 2
    assert found["tpot_s"]["count"] == found["e2e_s"]["count"] == 1
    assert found["window"]["left_out"]["slow_readers"] == 1
    assert found["requests"]["completed"] == 2


def test_a_request_counts_once_however_often_it_was_tried() -> None:
    refused = {"status": "rejected", "cause": "HTTP 503: later", "http_status": 503}
    attempts = rows(
        refused | {"request_id": 0},
        {"request_id": 0, "attempt": 1, "scheduled_s": 0.0, "sent_s": 5.0},
    )
    assert last_attempts(attempts)["status"].tolist() == ["completed"]
    found = figures(attempts, 0, 0)
    assert (found["requests"]["sent"], found["clients"]["attempts"]) == (1, 2)
    assert found["clients"]["retries"] == 1
    assert found["clients"]["http_status"] == {"200": 1, "503": 1}
    assert found["ttft_s"]["mean"] == pytest.approx(0.1)
    assert found["ttft_scheduled_s"]["mean"] == pytest.approx(5.1)
    assert found["lateness_s"]["max"] == 0.0  # a retry is not late


def test_what_clients_did_is_counted_apart() -> None:
    found = figures(
        rows(
            {"status": "cancelled", "left": "after_s"},
            {"status": "cancelled", "left": "after_tokens"},
            {"status": "cancelled", "left": "after_s"},
            {"status": "failed", "cause": "no end after 5 s (timeout_s)"},
            {"generated_tokens": 2, "all_generated_tokens": 2},
        ),
        0,
        0,
    )
    assert found["clients"]["left"] == {"after_s": 2, "after_tokens": 1}
    assert found["clients"]["timed_out"] == 1
    assert found["clients"]["fewer_tokens_than_asked"] == 1
    assert sum(found["requests"].values()) == 2 * found["requests"]["sent"]


def test_causes_that_differ_in_numbers_are_one() -> None:
    given = [{"status": "rejected", "cause": f"HTTP 400: {n} tokens"} for n in (9000, 8500, 12)]
    found = figures(rows(*given, {"status": "failed", "cause": "connection refused"}), 0, 0)
    assert found["clients"]["causes"] == {"HTTP 400: 9000 tokens": 3, "connection refused": 1}


def test_gaps_are_between_neighbouring_tokens() -> None:
    table = pd.DataFrame({"token_times_s": [[1.0, 1.5, 1.5], [2.0], []]})
    assert gaps_s(table).tolist() == [0.5, 0.0]
    assert gaps_s(table[:0]).tolist() == []


def test_a_late_or_busy_client_is_warned_of() -> None:
    late = [{"scheduled_s": 1.0 * number, "sent_s": number + 0.02} for number in range(200)]
    found = figures(rows(*late), 0, 0)
    busy = {"workers": [{"worker": 1, "cpu": {"saturated_s": 3}}, {"worker": 2, "cpu": None}]}
    said = warnings(found, busy)
    assert "20.0 ms late (p99)" in said[0]
    assert "worker 1 took more than 90 % of a core in 3 s" in said[1]
    assert len(said) == 2
    calm = figures(rows({}, {}), 0, 0)
    assert warnings(calm, {"workers": [{"worker": 0, "cpu": {"saturated_s": 0}}]}) == []


def test_a_run_of_which_nothing_completed_failed() -> None:
    """The commonest cause says why, or else how requests ended."""
    sent_to_its_end = {"status": "completed", "cause": None}
    refused = {"status": "rejected", "cause": "HTTP 401: no"}
    lost = {"status": "failed", "cause": "connection refused"}
    found = figures(rows(refused, lost, refused), 0, 0)
    cause = "no request completed: HTTP 401: no"
    assert outcome(found, sent_to_its_end) == {"status": "failed", "cause": cause}
    left = figures(rows({"status": "cancelled", "left": "after_s"}), 0, 0)
    assert outcome(left, sent_to_its_end)["cause"] == "no request completed: 1 cancelled"
    nothing = figures(ATTEMPTS.empty_table().to_pandas(), 0, 0)
    assert outcome(nothing, sent_to_its_end)["cause"] == "no request completed: none was sent"
    stopped = {"status": "incomplete", "cause": "stopped by the user"}
    assert outcome(found, stopped) == stopped
    assert outcome(figures(rows(refused, {}), 0, 0), sent_to_its_end) == sent_to_its_end


def test_a_server_that_ignores_n_is_warned_of() -> None:
    found = figures(rows({"branches": 4, "answers": 1}, {"branches": 2, "answers": 2}), 0, 0)
    assert found["clients"]["fewer_answers_than_asked"] == 1
    assert "1 requests got fewer answers than they asked for" in warnings(found, {})[0]


def test_what_connections_did_is_counted() -> None:
    found = figures(rows({"resent": True, "shared_reads": 2}, {"shared_reads": 1}, {}), 0, 0)
    assert (found["clients"]["resent"], found["clients"]["shared_reads"]) == (1, 3)


def test_branches_count_as_tokens() -> None:
    found = figures(rows({"branches": 4, "all_generated_tokens": 12}), 0, 0)
    assert found["throughput"]["output_tokens_per_s"] == pytest.approx(12 / 0.3)
    assert np.isclose(found["simulated_s"], 0.3)
