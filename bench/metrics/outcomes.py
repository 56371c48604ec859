"""How many requests ended how, and what of them a second: one definition for the engine's records
and for clients'."""

from __future__ import annotations

import pandas as pd

from bench.metrics.status import Status


def request_counts(statuses: pd.Series[str], sent: int) -> dict[str, int]:
    """Requests by how they ended, and how many were sent: counted apart, as they were."""
    counts = {status.value: int((statuses == status.value).sum()) for status in Status}
    return {"sent": sent} | counts


def throughput(
    requests: int, output_tokens: int, prompt_tokens: int, length_s: float
) -> dict[str, float | None]:
    """Of completed requests, all their branches, a second of `length_s`; null if there are none:
    nothing is known of a server's rate then."""
    if not requests:
        length_s = 0.0
    total = output_tokens + prompt_tokens
    return {
        "requests_per_s": ratio(requests, length_s),
        "output_tokens_per_s": ratio(output_tokens, length_s),
        "total_tokens_per_s": ratio(total, length_s),
    }


def ratio(part: float, whole: float) -> float | None:
    """Null where the whole is nothing."""
    return part / whole if whole > 0 else None
