"""The figures of a load run, from its clients' rows (docs/metrics.md has the definitions)."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bench.load.records import ATTEMPTS, TIMED_OUT
from bench.metrics.inter_token import write_gaps
from bench.metrics.latency import distribution, latencies, left, prompt_readers
from bench.metrics.outcomes import request_counts, throughput
from bench.metrics.records import REQUESTS
from bench.metrics.status import Status

CAUSES_KEPT = 20
_DIGITS = re.compile(r"\d+")
LATE_S = 0.010
"""Lateness at p99 from which the client, not the server, is measured."""


class Window(NamedTuple):
    """The part of a run that figures are of, in its seconds: requests sent in it count for
    latencies, those that ended in it for throughput."""

    from_s: float
    to_s: float

    @property
    def length_s(self) -> float:
        return max(self.to_s - self.from_s, 0.0)

    def holds(self, times_s: pd.Series[float]) -> pd.Series[bool]:
        """Which of these times are in it, its end included."""
        return (times_s >= self.from_s) & (times_s <= self.to_s)


def read_attempts(folder: Path) -> pd.DataFrame:
    """All rows of `client/`, one an attempt, in order of sending."""
    parts = sorted((folder / "client").glob("*.parquet"))
    tables = [pq.read_table(part).to_pandas() for part in parts]
    empty = ATTEMPTS.empty_table().to_pandas()
    rows = pd.concat(tables, ignore_index=True) if tables else empty
    ordered: pd.DataFrame = rows.sort_values(["scheduled_s", "request_id", "attempt"])
    return ordered.reset_index(drop=True)


def last_attempts(attempts: pd.DataFrame) -> pd.DataFrame:
    """One row a request: how it ended in the end."""
    return attempts.drop_duplicates("request_id", keep="last", ignore_index=True)


def write_requests(folder: Path, requests: pd.DataFrame) -> None:
    """`requests/` as the in-process driver writes it, without what only an engine knows."""
    target = folder / "requests"
    target.mkdir()
    if len(requests):
        rows = requests.reindex(columns=REQUESTS.names).astype({"preemptions": "Int64"})
        table = pa.Table.from_pandas(rows, schema=REQUESTS, preserve_index=False)
        pq.write_table(table, target / "part-00000.parquet")


def figures(attempts: pd.DataFrame, warm_up_s: float, cool_down_s: float) -> dict[str, Any]:
    """Counts, throughput and latencies for summary.json; undefined is null.

    Slow readers' times after the first token are their own. Counts are of the whole run.
    """
    requests = last_attempts(attempts)
    window = _window(attempts, warm_up_s, cool_down_s)
    completed = requests[requests["status"] == Status.COMPLETED]
    sent_within = _completed_within(requests, window)
    paced = prompt_readers(sent_within)
    return {
        "requests": request_counts(requests["status"], len(requests)),
        "throughput": _throughput(completed[window.holds(completed["end_s"])], window.length_s),
        **latencies(sent_within),
        "itl_s": distribution(gaps_s(paced)),
        "window": {
            "from_s": window.from_s,
            "to_s": window.to_s,
            "left_out": {
                "warm_up_or_cool_down": len(completed) - len(sent_within),
                "slow_readers": len(sent_within) - len(paced),
            },
        },
        "clients": clients(attempts, requests),
        "lateness_s": lateness_s(attempts),
        "simulated_s": _end_s(attempts),
    }


def write_client_gaps(
    folder: Path, attempts: pd.DataFrame, warm_up_s: float, cool_down_s: float
) -> None:
    """Writes the gaps that `figures` has the percentiles of."""
    window = _window(attempts, warm_up_s, cool_down_s)
    gaps = gaps_s(prompt_readers(_completed_within(last_attempts(attempts), window)))
    write_gaps(folder, gaps, np.ones(len(gaps), dtype=np.int64))


def _completed_within(requests: pd.DataFrame, window: Window) -> pd.DataFrame:
    """Requests that completed and were sent in the window."""
    completed = requests[requests["status"] == Status.COMPLETED]
    return completed[window.holds(completed["sent_s"])]


def clients(attempts: pd.DataFrame, requests: pd.DataFrame) -> dict[str, Any]:
    """What clients did beside reading, and what they met, each counted apart."""
    failures = requests[requests["status"] != Status.COMPLETED]
    http = attempts["http_status"].dropna().astype(int).astype(str)
    return {
        "attempts": len(attempts),
        "retries": int((attempts["attempt"] > 0).sum()),
        "left": left(requests),
        "timed_out": int(attempts["cause"].str.startswith(TIMED_OUT, na=False).sum()),
        "slow_readers": int(requests["slow_reader"].astype(bool).sum()),
        "http_status": _tally(http),
        "causes": _causes(failures["cause"].dropna()),
        "tokens_counted_by": _tally(requests["counted_by"].dropna()),
        "fewer_tokens_than_asked": int(_short(requests).sum()),
        "fewer_answers_than_asked": int(_few(requests).sum()),
        "new_connections": int(attempts["new_connection"].astype(bool).sum()),
        "resent": int(attempts["resent"].astype(bool).sum()),
        "shared_reads": int(attempts["shared_reads"].sum()),
    }


def lateness_s(attempts: pd.DataFrame) -> dict[str, float | int | None]:
    """Sent - scheduled, of first attempts: what the client, not the server, was late by. Where
    there was no idle connection a handshake is in it."""
    first = attempts[attempts["attempt"] == 0]
    late = (first["sent_s"] - first["scheduled_s"]).to_numpy(dtype=float)
    known = late[~np.isnan(late)]
    return distribution(late) | {"max": float(known.max()) if len(known) else None}


def gaps_s(requests: pd.DataFrame) -> np.ndarray:
    """Inter-token latency: every gap between neighbouring tokens, shape (n,), in seconds. Tokens
    of one chunk came together: 0."""
    gaps = [np.diff(np.asarray(times, dtype=float)) for times in requests["token_times_s"]]
    return np.concatenate(gaps) if gaps else np.zeros(0)


def outcome(found: dict[str, Any], facts: dict[str, Any]) -> dict[str, str | None]:
    """Status and cause of a run: a traffic that was sent to its end failed if nothing of it
    completed."""
    status, cause = facts["status"], facts["cause"]
    if status == "completed" and not found["requests"]["completed"]:
        return {"status": "failed", "cause": f"no request completed: {_why_not(found)}"}
    return {"status": status, "cause": cause}


def _why_not(found: dict[str, Any]) -> str:
    for cause in found["clients"]["causes"]:  # the commonest first
        return str(cause)
    ends = {name: count for name, count in found["requests"].items() if name != "sent" and count}
    return ", ".join(f"{count} {name}" for name, count in ends.items()) or "none was sent"


def warnings(found: dict[str, Any], processes: dict[str, Any]) -> list[str]:
    """What makes the figures doubtful, a sentence each."""
    said = []
    few = found["clients"]["fewer_answers_than_asked"]
    if few:
        said.append(
            f"{few} requests got fewer answers than they asked for: the server ignores n, so that "
            "its tokens and memory are not the workload's."
        )
    late_s, which = found["lateness_s"]["p99"], "p99"
    if late_s is None:  # of too few requests
        late_s, which = found["lateness_s"]["max"], "at most"
    if late_s is not None and late_s > LATE_S:
        said.append(
            f"requests were sent {late_s * 1000:.1f} ms late ({which}), which is more than 10 ms: "
            "look at ttft_scheduled_s, and use more load.processes."
        )
    for worker in processes.get("workers", ()):
        cpu = worker["cpu"]
        if cpu and cpu["saturated_s"]:
            said.append(
                f"worker {worker['worker']} took more than 90 % of a core in "
                f"{cpu['saturated_s']} s: use more load.processes, or a machine with more cores."
            )
    return said


def _window(attempts: pd.DataFrame, warm_up_s: float, cool_down_s: float) -> Window:
    """All of the run less its warm-up and cool-down."""
    end_s = _end_s(attempts)
    return Window(warm_up_s, end_s - cool_down_s if cool_down_s else end_s)


def _end_s(attempts: pd.DataFrame) -> float:
    """When the last attempt ended; of one that was open then, the last that came of it."""
    last = attempts[["sent_s", "last_token_s", "end_s"]].max().max()
    return 0.0 if pd.isna(last) else float(last)


def _throughput(completed: pd.DataFrame, length_s: float) -> dict[str, float | None]:
    told = completed["usage_prompt_tokens"].fillna(completed["prompt_tokens"])
    output = int(completed["all_generated_tokens"].sum())
    return throughput(len(completed), output, int(told.sum()), length_s)


def _short(requests: pd.DataFrame) -> pd.Series[bool]:
    completed = requests["status"] == Status.COMPLETED
    return completed & (requests["generated_tokens"] < requests["output_tokens"])


def _few(requests: pd.DataFrame) -> pd.Series[bool]:
    completed = requests["status"] == Status.COMPLETED
    return completed & (requests["answers"] < requests["branches"])


def _causes(causes: pd.Series[str]) -> dict[str, int]:
    """The commonest causes; of those that differ in numbers alone the first stands for all."""
    kinds = Counter(_DIGITS.sub("0", cause) for cause in causes)
    first = {_DIGITS.sub("0", cause): cause for cause in reversed(list(causes))}
    return {first[kind]: count for kind, count in kinds.most_common(CAUSES_KEPT)}


def _tally(values: pd.Series[Any]) -> dict[str, int]:
    return {str(value): int(count) for value, count in values.value_counts().items()}
