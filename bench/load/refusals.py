"""What a server says as it refuses a request: why, and when to come again."""

from __future__ import annotations

import json
import time
from email.utils import parsedate_to_datetime

from bench.load.completions import error_message

MOST_RETRY_AFTER_S = 86_400.0


def message(body: bytes) -> str:
    """What the body of a refusal says."""
    try:
        return error_message(json.loads(body))
    except ValueError:
        return " ".join(body.decode(errors="replace").split())[:300]


def retry_after_s(header: object) -> float | None:
    """Seconds that a Retry-After header asks for, as a number or as a date."""
    if not isinstance(header, str):
        return None
    try:
        seconds = float(header) if header.strip().isdecimal() else _seconds_until(header)
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), MOST_RETRY_AFTER_S)


def _seconds_until(date: str) -> float:
    return parsedate_to_datetime(date).timestamp() - time.time()
