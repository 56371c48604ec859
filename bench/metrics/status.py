"""How requests end."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """How a request ended; `unfinished` ones were open when the run stopped."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    UNFINISHED = "unfinished"
