"""The settings that say what to do with rows that are no plain requests."""

from __future__ import annotations

from typing import Any

from workloads.formats.base import Tally
from workloads.settings import MAX_TOKENS, count, refusal


def tally(
    owner: str, on_bad_row: str, failed_requests: str, output_tokens: int | None = None
) -> Tally:
    """The choices of a reading that these settings of `owner` make. Raises WorkloadError.

    `on_bad_row` is fail, or skip, which leaves out rows that cannot be read, or whose time is
    before that of the row before, and counts them. `failed_requests` is drop, or keep, which takes
    requests that got no token as ones of a single token: an engine gives no fewer.
    `output_tokens` is the output of requests whose file says none.
    """
    if output_tokens is not None:
        fix = "leave it null where the file says it"
        count(f"{owner}.output_tokens", output_tokens, 1, MAX_TOKENS, "tokens", fix)
    return Tally(
        skip_bad_rows=_either(f"{owner}.on_bad_row", on_bad_row, "fail", "skip"),
        keep_failed=_either(f"{owner}.failed_requests", failed_requests, "drop", "keep"),
        output_tokens=output_tokens,
    )


def why_none(met: Tally) -> str:
    """Why a file gave no requests, and what to do."""
    if met.skipped:
        return (
            f"{met.skipped:,} of {met.rows:,} rows cannot be read, the first: {met.first_skipped}"
        )
    if met.failed:
        return f"all {met.failed:,} failed: set failed_requests=keep, or give another file"
    return "give one that has some"


def _either(setting: str, value: Any, no: str, yes: str) -> bool:
    if value not in (no, yes):
        raise refusal(setting, value, f"{no} or {yes}", f"{no} is the default")
    return bool(value == yes)
