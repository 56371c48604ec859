"""What the requests of a run, or of several that are one, come to: counts, rates and latencies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bench.metrics.latency import distribution, latencies, left
from bench.metrics.outcomes import request_counts, throughput
from bench.metrics.records import REQUESTS
from bench.metrics.status import Status

COLUMNS = [
    "status", "left", "slow_reader", "prompt_tokens", "generated_tokens", "branches",
    "scheduled_s", "sent_s", "first_token_s", "last_token_s", "end_s",
]  # fmt: skip
_WORDS = ["status", "left"]


def read_requests(folders: Sequence[Path]) -> pd.DataFrame:
    """What figures need of `requests/` in each folder; words that are often the same are kept
    once."""
    parts = [part for folder in folders for part in sorted(folder.glob("requests/*.parquet"))]
    tables = [_read(part) for part in parts] or [REQUESTS.empty_table().select(COLUMNS)]
    rows: pd.DataFrame = pa.concat_tables(tables).unify_dictionaries().to_pandas()
    return rows


def _read(part: Path) -> pa.Table:
    with pq.ParquetFile(part, read_dictionary=_WORDS) as file:
        return file.read(columns=COLUMNS)


def request_figures(
    requests: pd.DataFrame, sent: int, gaps: tuple[np.ndarray, np.ndarray], length_s: float
) -> dict[str, Any]:
    """For summary.json, of a time of `length_s`; `gaps` are lengths and how often each occurred."""
    completed = requests[requests["status"] == Status.COMPLETED.value]
    return {
        "requests": request_counts(requests["status"], sent),
        "throughput": throughput(
            len(completed),
            int((completed["generated_tokens"] * completed["branches"]).sum()),
            int(completed["prompt_tokens"].sum()),
            length_s,
        ),
        **latencies(completed),
        "itl_s": distribution(*gaps),
        "clients": {
            "left": left(requests),
            "slow_readers": int(requests["slow_reader"].astype(bool).sum()),
        },
    }
