"""The rows of a load run: one an attempt at a request, one a look at the server's metrics.

An attempt's status is its client's: `cancelled` ones were left by it, `rejected` ones refused
before any work (4xx, 503), `failed` ones are all that went wrong otherwise, a timeout too.
"""

from __future__ import annotations

import pyarrow as pa

TIMED_OUT = "no end after"
"""What the cause of a client's timeout starts with."""

ATTEMPTS = pa.schema(
    [
        ("request_id", pa.int64()),
        ("kind", pa.string()),
        ("attempt", pa.int64()),  # from 0
        ("worker", pa.int64()),
        ("branches", pa.int64()),
        ("prompt_tokens", pa.int64()),
        ("output_tokens", pa.int64()),  # asked for, of each branch
        ("generated_tokens", pa.int64()),  # of the longest branch
        ("all_generated_tokens", pa.int64()),  # of all branches
        ("counted_by", pa.string()),  # bench/load/completions.py
        ("usage_prompt_tokens", pa.int64()),
        ("usage_completion_tokens", pa.int64()),
        ("cached_tokens", pa.int64()),
        ("scheduled_s", pa.float64()),
        ("sent_s", pa.float64()),
        ("first_token_s", pa.float64()),
        ("last_token_s", pa.float64()),
        ("end_s", pa.float64()),
        ("token_times_s", pa.list_(pa.float64())),  # of branch 0
        ("status", pa.string()),
        ("http_status", pa.int64()),
        ("cause", pa.string()),
        ("left", pa.string()),  # how the client left, of workloads.clients.LEAVING
        ("left_s", pa.float64()),
        ("slow_reader", pa.bool_()),
        ("new_connection", pa.bool_()),
        ("resent", pa.bool_()),  # anew, as the server had just closed an idle connection
        ("shared_reads", pa.int64()),  # reads with several chunks of a branch: all at one time
        ("answers", pa.int64()),  # branches that the server gave
    ]
)
"""Times are seconds from the run's start on the monotonic clock of the worker's machine."""

SCRAPED = pa.schema(
    [
        ("time_s", pa.float64()),
        ("running", pa.float64()),
        ("waiting", pa.float64()),
        ("kv_usage", pa.float64()),  # 0 to 1
        ("preemptions", pa.float64()),
        ("scrape_s", pa.float64()),  # that the server took to answer
    ]
)
